package model

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// A script is a sequence of events, one a line. Every line is valid at every time, so that
// any part of a script is a script: an event that is impossible has no effect. After a line
// that begins with "+", the next one does not wait for the program.
type script []string

// lineTemplates are the lines of a random script with their relative frequencies. Words in
// braces are replaced by random words.
var lineTemplates = []struct {
	weight int
	line   string
}{
	{26, "plug {thing} {place} {number}"}, // place 1 to 8, number of the first node
	{10, "pull {thing}"},
	{5, "swap {twins}"},
	{14, "admit {resource}"}, // a pod that takes one slot
	{6, "release"},           // the oldest pod
	{3, "edit {resource} count {count}"},
	{5, "edit {resource} inject {inject}"}, // link or cdi
	{3, "edit {resource} name {name}"},
	{3, "edit {usb} identity {identity}"},
	{2, "edit {resource} remove"},
	{3, "edit {resource} add"},
	{2, "break config"}, // until the next edit
	{2, "touch config"},
	{3, "restart kubelet"},
	{2, "stop kubelet"},
	{3, "start kubelet"},
	{1, "forget kubelet"}, // a restart without its checkpoint: all pods are gone
	{2, "refuse pods"},    // PodResources
	{2, "answer pods"},
	{4, "cut {resource}"}, // the ListAndWatch stream
	{2, "kill program"},
	{2, "stop program"},
	{6, "start program"},
	{2, "fill {dir}"},
	{2, "lock state"}, // read-only
	{4, "free"},       // full and read-only directories
}

var words = map[string][]string{
	"{thing}":    thingNames,
	"{twins}":    {"C D", "T U", "A B", "M N", "G H", "A C"},
	"{resource}": {"serial", "dual", "card", "widget"},
	"{count}":    {"1", "2", "3"},
	"{inject}":   {"link", "cdi"},
	"{name}":     {"0", "1"},
	"{usb}":      {"serial", "dual"},
	"{identity}": {"auto", "port"},
	"{place}":    {"1", "2", "3", "4", "5", "6", "7", "8"},
	"{number}":   {"0", "0", "1", "2", "3", "4"},
	"{dir}":      {"state", "run", "cdi"},
}

// randomScript returns a script of n lines.
func randomScript(r *rand.Rand, n int) script {
	total := 0
	for _, s := range lineTemplates {
		total += s.weight
	}
	s := script{"start program"}
	if r.IntN(2) == 0 {
		s = script{"kubelet by socket", "start program"}
	}
	for range 4 {
		s = append(s, "+"+expand(r, lineTemplates[0].line))
	}
	for len(s) < n {
		if *waits && r.IntN(12) == 0 {
			s = append(s, "wait 61s") // devices may leave lists, links of released devices go
		}
		at := r.IntN(total)
		for _, template := range lineTemplates {
			if at -= template.weight; at < 0 {
				line := expand(r, template.line)
				if r.IntN(3) == 0 {
					line = "+" + line
				}
				s = append(s, line)
				break
			}
		}
	}
	return s
}

// expand replaces the words in braces.
func expand(r *rand.Rand, line string) string {
	fields := strings.Fields(line)
	for i, f := range fields {
		if strings.HasPrefix(f, "{") {
			choice := words[f] // an unknown word panics
			fields[i] = choice[r.IntN(len(choice))]
		}
	}
	return strings.Join(fields, " ")
}

// shrink returns a short part of a failing script that fails by the same rule: it removes
// ever smaller pieces while the rest fails (ddmin). Short scripts are tried twice, since one
// that fails by a race may pass.
func shrink(s script, failed *violation, until time.Time, run func(script) *violation) (script, *violation) {
	s = s[:min(len(s), failed.step+1)]
	for size := len(s) / 2; size >= 1; {
		removed := false
		for at := 0; at < len(s) && time.Now().Before(until); {
			rest := append(append(script{}, s[:at]...), s[min(len(s), at+size):]...)
			v := run(rest)
			if v == nil && size <= 2 {
				v = run(rest)
			}
			if v != nil && v.rule == failed.rule {
				s, failed, removed = rest[:min(len(rest), v.step+1)], v, true
				continue
			}
			at += size
		}
		if !removed || size > 1 {
			size /= 2
		}
	}
	return s, failed
}

// violation is a rule that does not hold after a line.
type violation struct {
	step int // index of the line
	rule string
	what string
	log  []byte // of the program
}

func (v *violation) Error() string { return fmt.Sprintf("%s: %s", v.rule, v.what) }

func (s script) String() string { return "  " + strings.Join(s, "\n  ") + "\n" }
