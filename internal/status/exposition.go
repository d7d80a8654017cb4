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
}

// series are the samples of a metric, by their labels in the text format.
type series struct {
	family
	samples map[string]*sample
}

// sample is the value of a counter or gauge, or the state of a histogram.
type sample struct {
	value   float64 // of a histogram: the sum of its observations
	count   int     // of observations
	buckets [len(bounds)]int
}

// bounds are the bounds of the buckets of histograms, in seconds.
var bounds = [...]float64{.0005, .001, .005, .01, .05, .1, .5, 1}

// escape escapes the value of a label.
var escape = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// label is a label in the text format. Prometheus rejects a scrape that is not UTF-8. name must be
// a valid name of a label.
func label(name, value string) string {
	valid := strings.ToValidUTF8(value, "\uFFFD")
	return name + `="` + escape.Replace(valid) + `"`
}

// sample returns the sample of a metric with these labels, given as names and values in turns. It makes
// the sample if there is none. The names must be in alphabetical order.
func (e exposition) sample(f family, labels ...string) *sample {
	if e[f.name] == nil {
		e[f.name] = &series{family: f, samples: map[string]*sample{}}
	}
	var pairs []string
	for pair := range slices.Chunk(labels, 2) {
		pairs = append(pairs, label(pair[0], pair[1]))
	}
	key := strings.Join(pairs, ",")
	samples := e[f.name].samples
	if samples[key] == nil {
		samples[key] = &sample{}
	}
	return samples[key]
}

// gauge sets a gauge.
func (e exposition) gauge(name, help string, value float64, labels ...string) {
	e.sample(family{name, "gauge", help}, labels...).value = value
}

// forget drops all samples with a label.
func (f *series) forget(name, value string) {
	maps.DeleteFunc(f.samples, func(labels string, _ *sample) bool {
		// The quotes around the value prevent matches of a part of it.
		return strings.Contains(labels, label(name, value))
	})
}

// add adds to a counter, or observes a value of a histogram. The buckets are cumulative, as in the text
// format.
func (s *sample) add(v float64) {
	s.value += v
	s.count++
	for i, bound := range bounds {
		if v <= bound {
			s.buckets[i]++
		}
	}
}

// text writes every metric that has samples, in a stable order.
func (e exposition) text() []byte {
	var text []byte
	for _, name := range slices.Sorted(maps.Keys(e)) {
		f := e[name]
		if len(f.samples) == 0 {
			continue
		}
		text = fmt.Appendf(text, "# HELP %s %s\n# TYPE %s %s\n", name, f.help, name, f.kind)
		for _, labels := range slices.Sorted(maps.Keys(f.samples)) {
			s := f.samples[labels]
			if f.kind == "histogram" {
				text = s.appendHistogram(text, name, labels)
			} else {
				text = appendLine(text, name, labels, s.value)
			}
		}
	}
	return text
}

// appendHistogram writes a line for each bucket, the sum and the count. The last bucket has no bound and
// therefore all observations.
func (s *sample) appendHistogram(text []byte, name, labels string) []byte {
	prefix := labels
	if prefix != "" {
		prefix += ","
	}
	for i, bound := range bounds {
		le := label("le", strconv.FormatFloat(bound, 'g', -1, 64))
		text = appendLine(text, name+"_bucket", prefix+le, float64(s.buckets[i]))
	}
	text = appendLine(text, name+"_bucket", prefix+label("le", "+Inf"), float64(s.count))
	text = appendLine(text, name+"_sum", labels, s.value)
	return appendLine(text, name+"_count", labels, float64(s.count))
}

// appendLine writes one value. A number is written as Go writes it, as the format requires.
func appendLine(text []byte, name, labels string, value float64) []byte {
	if labels != "" {
		labels = "{" + labels + "}"
	}
	return fmt.Appendf(text, "%s%s %s\n", name, labels, strconv.FormatFloat(value, 'g', -1, 64))
}
