package status

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// exposition has metrics by name, for the text format of Prometheus
// (https://prometheus.io/docs/instrumenting/exposition_formats/). Prometheus's own
// library would make the binary 0.5 MB larger.
type exposition map[string]*series

// family describes a metric.
type family struct {
	name string
	// kind is counter, gauge or histogram.
	kind string
	// help is one line, which is not escaped.
	help string
	// labels are the names of the labels, in alphabetical order.
	labels []string
	// bounds are the bounds of a histogram's buckets.
	bounds []float64
}

// series are the samples of a metric, by the values of its labels.
type series struct {
	family
	samples map[string]*sample
}

// sample is the value of a counter or gauge, or the state of a histogram. Only the fields of its
// kind are used.
type sample struct {
	labels  string   // in the text format
	value   float64  // of a histogram: the sum of its observations
	count   uint64   // of observations
	buckets []uint64 // observations up to each bound
}

// escape escapes the value of a label.
var escape = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// label is a label in the text format. Prometheus rejects a scrape that is not UTF-8. name must be
// a valid name of a label.
func label(name, value string) string {
	valid := strings.ToValidUTF8(value, "\uFFFD")
	return name + `="` + escape.Replace(valid) + `"`
}

// add returns the series of a metric. It makes the series if there is none.
func (e exposition) add(f family) *series {
	if e[f.name] == nil {
		e[f.name] = &series{family: f, samples: map[string]*sample{}}
	}
	return e[f.name]
}

// with returns the sample with these values of the labels. It makes the sample if there is none.
// There must be as many values as labels.
func (f *series) with(values ...string) *sample {
	key := strings.Join(values, "\x00")
	// Values that only differ in invalid bytes become the same label, and must not be two samples.
	key = strings.ToValidUTF8(key, "\uFFFD")
	s := f.samples[key]
	if s != nil {
		return s
	}
	pairs := make([]string, len(f.labels))
	for i, name := range f.labels {
		pairs[i] = label(name, values[i])
	}
	s = &sample{
		labels:  strings.Join(pairs, ","),
		buckets: make([]uint64, len(f.bounds)),
	}
	f.samples[key] = s
	return s
}

// set sets the sample with these values of the labels.
func (f *series) set(v float64, values ...string) {
	f.with(values...).value = v
}

// setInt sets a sample to a count.
func (f *series) setInt(n int, values ...string) {
	f.set(float64(n), values...)
}

// setIfKnown sets a sample to a count, unless the count is nil.
func (f *series) setIfKnown(n *int, values ...string) {
	if n != nil {
		f.setInt(*n, values...)
	}
}

// setBool sets a sample to 1 or 0.
func (f *series) setBool(is bool, values ...string) {
	if is {
		f.set(1, values...)
	} else {
		f.set(0, values...)
	}
}

// forget drops all samples with a label.
func (f *series) forget(name, value string) {
	maps.DeleteFunc(f.samples, func(_ string, s *sample) bool {
		// The quotes around the value prevent matches of a part of it.
		return strings.Contains(s.labels, label(name, value))
	})
}

// add adds v to a counter, or observes it if there are bounds. The buckets are cumulative, as in
// the text format.
func (s *sample) add(v float64, bounds []float64) {
	s.value += v
	s.count++
	for i, bound := range bounds {
		if v <= bound {
			s.buckets[i]++
		}
	}
}

// text writes every metric that has samples, in a stable order. A metric without a sample is left
// out, also its help.
func (e exposition) text() []byte {
	var w textWriter
	for _, name := range slices.Sorted(maps.Keys(e)) {
		f := e[name]
		if len(f.samples) > 0 {
			w.series(f)
		}
	}
	return w.text
}

// textWriter writes metrics in the text format.
type textWriter struct{ text []byte }

// series writes a metric with its samples.
func (w *textWriter) series(f *series) {
	w.text = fmt.Appendf(w.text, "# HELP %s %s\n", f.name, f.help)
	w.text = fmt.Appendf(w.text, "# TYPE %s %s\n", f.name, f.kind)
	samples := slices.SortedFunc(maps.Values(f.samples), compareLabels)
	for _, s := range samples {
		if f.bounds == nil {
			w.line(f.name, s.labels, s.value)
		} else {
			w.histogram(f.name, s, f.bounds)
		}
	}
}

// compareLabels compares samples by their labels.
func compareLabels(a, b *sample) int {
	return strings.Compare(a.labels, b.labels)
}

// histogram writes the sample of a histogram: a line for each bucket, the sum and the count. The
// last bucket has no bound and therefore all observations.
func (w *textWriter) histogram(name string, s *sample, bounds []float64) {
	prefix := s.labels
	if prefix != "" {
		prefix += ","
	}
	for i, bound := range bounds {
		text := strconv.FormatFloat(bound, 'g', -1, 64)
		labels := prefix + label("le", text)
		w.line(name+"_bucket", labels, float64(s.buckets[i]))
	}
	count := float64(s.count)
	w.line(name+"_bucket", prefix+label("le", "+Inf"), count)
	w.line(name+"_sum", s.labels, s.value)
	w.line(name+"_count", s.labels, count)
}

// line writes one value. A number is written as Go writes it, as the format requires.
func (w *textWriter) line(name, labels string, value float64) {
	w.text = append(w.text, name...)
	if labels != "" {
		w.text = append(w.text, '{')
		w.text = append(w.text, labels...)
		w.text = append(w.text, '}')
	}
	w.text = append(w.text, ' ')
	w.text = strconv.AppendFloat(w.text, value, 'g', -1, 64)
	w.text = append(w.text, '\n')
}
