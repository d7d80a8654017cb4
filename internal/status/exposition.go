package status

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// exposition has metrics by name, for the text format of Prometheus
// (https://prometheus.io/docs/instrumenting/exposition_formats/). Prometheus's own
// library would make the binary 0.5 MB larger.
type exposition map[string]*family

// family is a metric with its samples.
type family struct {
	kind, help string
	labels     []string
	bounds     []float64          // of a histogram's buckets
	samples    map[string]*sample // by the values of the labels
}

// sample is the value of a counter or gauge, or the state of a histogram.
type sample struct {
	labels  string   // in the text format
	value   float64  // of a histogram: the sum of its observations
	count   uint64   // of observations
	buckets []uint64 // observations up to each bound
}

var escape = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// label is a label in the text format.
func label(name, value string) string {
	return name + `="` + escape.Replace(strings.ToValidUTF8(value, "\uFFFD")) + `"`
}

// add adds a metric like f, without samples.
func (e exposition) add(name string, f family) *family {
	f.samples = map[string]*sample{}
	e[name] = &f
	return &f
}

// with returns the sample with these values of the labels.
func (f *family) with(values ...string) *sample {
	key := strings.ToValidUTF8(strings.Join(values, "\x00"), "\uFFFD")
	s := f.samples[key]
	if s == nil {
		pairs := make([]string, len(f.labels))
		for i, name := range f.labels {
			pairs[i] = label(name, values[i])
		}
		s = &sample{labels: strings.Join(pairs, ","), buckets: make([]uint64, len(f.bounds))}
		f.samples[key] = s
	}
	return s
}

// forget drops all samples with a label.
func (f *family) forget(name, value string) {
	maps.DeleteFunc(f.samples, func(_ string, s *sample) bool {
		return strings.Contains(s.labels, label(name, value))
	})
}

// add adds v to a counter, or observes it if there are bounds.
func (s *sample) add(v float64, bounds []float64) {
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
	var b []byte
	line := func(name, labels string, value float64) {
		if b = append(b, name...); labels != "" {
			b = append(append(append(b, '{'), labels...), '}')
		}
		b = append(strconv.AppendFloat(append(b, ' '), value, 'g', -1, 64), '\n')
	}
	for _, name := range slices.Sorted(maps.Keys(e)) {
		f := e[name]
		if len(f.samples) == 0 {
			continue
		}
		b = fmt.Appendf(b, "# HELP %s %s\n# TYPE %s %s\n", name, f.help, name, f.kind)
		samples := slices.Collect(maps.Values(f.samples))
		sort.Slice(samples, func(i, j int) bool { return samples[i].labels < samples[j].labels })
		for _, s := range samples {
			if f.bounds == nil {
				line(name, s.labels, s.value)
				continue
			}
			prefix := s.labels
			if prefix != "" {
				prefix += ","
			}
			for i, bound := range f.bounds {
				line(name+"_bucket", prefix+label("le", strconv.FormatFloat(bound, 'g', -1, 64)), float64(s.buckets[i]))
			}
			line(name+"_bucket", prefix+label("le", "+Inf"), float64(s.count))
			line(name+"_sum", s.labels, s.value)
			line(name+"_count", s.labels, float64(s.count))
		}
	}
	return b
}
