package dra

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
	"github.com/generic-dp/generic-dp/internal/testing/kubeapitest"
)

// listed are devices with lists of every type.
func listed(ids ...string) []Device {
	all := devices(ids...)
	for i := range all {
		all[i].Attributes = map[string]device.Typed{
			"serial":   {Text: "A1"},
			"serials":  {Text: "A1", List: []string{"A1", "B2", strings.Repeat("C", 70)}},
			"speeds":   {Type: device.IntType, List: []string{"12", "-1"}},
			"flags":    {Type: device.BoolType, List: []string{"true", "false"}},
			"versions": {Type: device.VersionType, List: []string{"1.0.0", "2.0.0-rc.1"}},
		}
		all[i].Attributes[numaNode] = device.Typed{Type: device.IntType, List: []string{"0", "1"}}
		all[i].NUMA = []int{0, 1}
	}
	return all
}

// question is whether a request asks for the support of lists.
func question(r kubeapitest.Request) bool { return r.Query == "dryRun=All" }

func questions(s *kubeapitest.Server) (n int) {
	for _, r := range s.Requests() {
		if question(r) {
			n++
		}
	}
	return n
}

// listFields are the fields of a list that a server may not know.
var listFields = []string{"ints", "bools", "strings", "versions"}

// attributesOf calls f for each attribute of a slice, with its field.
func attributesOf(slice kubeapitest.Object, f func(field string, a kubeapitest.Object)) {
	spec, _ := slice["spec"].(kubeapitest.Object)
	list, _ := spec["devices"].([]any)
	for i, d := range list {
		all, _ := d.(kubeapitest.Object)["attributes"].(kubeapitest.Object)
		for name, a := range all {
			f(fmt.Sprintf("spec.devices[%d].attributes[%s]", i, name), a.(kubeapitest.Object))
		}
	}
}

// hasLists reports whether a slice has lists.
func hasLists(slice kubeapitest.Object) (has bool) {
	attributesOf(slice, func(_ string, a kubeapitest.Object) {
		for _, name := range listFields {
			has = has || a[name] != nil
		}
	})
	return has
}

// feature makes a server accept lists or, like a server without the feature, drop them and refuse
// attributes without a value. It keeps lists of slices that have some.
func feature(s *kubeapitest.Server, isOn func(r *http.Request) bool) {
	s.Validate(func(o kubeapitest.Object) (causes []kubeapi.Cause) {
		attributesOf(o, func(field string, a kubeapitest.Object) {
			if len(a) == 0 {
				causes = append(causes, kubeapi.Cause{Field: field, Message: `Invalid value: "": exactly one value must be specified`})
			}
		})
		return causes
	})
	s.Fault(func(r *http.Request, o kubeapitest.Object) int {
		isInUse := hasLists(s.Objects(slicesPath)[r.URL.Path])
		if isOn(r) || isInUse {
			return 0
		}
		attributesOf(o, func(_ string, a kubeapitest.Object) {
			for _, name := range listFields {
				delete(a, name)
			}
		})
		return 0
	})
}

// values are the attributes of the first device of a pool as JSON, without resource and id.
func values(t *testing.T, all []slice) string {
	t.Helper()
	if len(all) == 0 || len(all[0].Spec.Devices) == 0 {
		return ""
	}
	attributes := all[0].Spec.Devices[0].Attributes
	delete(attributes, "id")
	delete(attributes, "resource")
	text, err := json.Marshal(attributes)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// singleValues are the attributes of a device of listed without lists.
const singleValues = `{"serial":{"string":"A1"},"serials":{"string":"A1"}}`

func TestLists(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	feature(s, func(*http.Request) bool { return true })
	p := start(t, s)
	p.Set(listed("a", "b"))
	all := p.until("published", has("a", "b"))
	want := `{"flags":{"bools":[true,false]},"resource.kubernetes.io/numaNode":{"ints":[0,1]},"serial":{"string":"A1"},` +
		`"serials":{"strings":["A1","B2","` + value(strings.Repeat("C", 70)) + `"]},"speeds":{"ints":[12,-1]},` +
		`"versions":{"versions":["1.0.0","2.0.0-rc.1"]}}`
	if diff := cmp.Diff(want, values(t, all)); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	p.Set(listed("a"))
	p.until("published without b", has("a"))
	if got := questions(s); got != 1 || len(s.Objects(slicesPath)) != 1 || p.ListProblem() != "" {
		t.Errorf("%d questions, %d slices, problem %q, want one question, one slice and no problem", got, len(s.Objects(slicesPath)), p.ListProblem())
	}

	// After a restart, lists are read as they were written.
	p.stop()
	before := len(writes(s))
	second := start(t, s)
	second.Set(listed("a"))
	second.until("watched", func([]slice) bool { return watches(s) == 2 && questions(s) == 2 })
	second.Set(append(listed("a"), devices("c")...))
	second.until("published with c", has("a", "c"))
	if got := len(writes(s)) - before; got != 2 {
		t.Errorf("%d writes after a restart, want the question and the slice with c", got)
	}
}

// Without the feature, the devices are published without lists, and the problem names the feature.
// Another server may have it.
func TestServerWithoutLists(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	var isOn atomic.Bool
	feature(s, func(*http.Request) bool { return isOn.Load() })
	p := start(t, s)
	p.Set(listed("a"))
	all := p.until("published", has("a"))
	if got := values(t, all); got != singleValues {
		t.Errorf("attributes %s, want %s", got, singleValues)
	}
	p.until("reported", func([]slice) bool { return p.ListProblem() != "" })
	for _, part := range []string{"Kubernetes 1.36", "DRAListTypeAttributes in the API server and the scheduler"} {
		if !strings.Contains(p.ListProblem(), part) {
			t.Errorf("problem %q, want %q", p.ListProblem(), part)
		}
	}
	for _, r := range s.Requests() {
		if r.Code == http.StatusUnprocessableEntity && !question(r) {
			t.Errorf("%s %s is refused", r.Method, r.Path)
		}
	}
	if p.Problem("a") != "" {
		t.Errorf("problem %q of the device, want none", p.Problem("a"))
	}

	isOn.Store(true)
	s.EndWatches()
	p.until("published with lists", func(all []slice) bool { return strings.Contains(values(t, all), `"ints":[0,1]`) })
	p.until("no problem", func([]slice) bool { return p.ListProblem() == "" })

	// A server without the feature keeps the lists of stored slices, and the scheduler cannot read
	// them.
	isOn.Store(false)
	s.EndWatches()
	p.until("published without lists", func(all []slice) bool { return values(t, all) == singleValues })
	p.until("reported", func([]slice) bool { return p.ListProblem() != "" })

	// Without lists there is nothing to report or to ask.
	p.Set(devices("a"))
	p.until("no problem", func([]slice) bool { return p.ListProblem() == "" })
	before := questions(s)
	s.EndWatches()
	p.Set(devices("a", "b"))
	p.until("published with b", has("a", "b"))
	if questions(s) != before {
		t.Error("a server is asked for lists that nobody has")
	}
}

// Another server of the cluster than the one that was asked may lack the feature. It must not look
// like a refused device.
func TestServersDisagreeAboutLists(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	feature(s, func(r *http.Request) bool { return r.URL.RawQuery != "" })
	p := start(t, s)
	p.Set(append(listed("a"), devices("b")...))
	all := p.until("published", has("a", "b"))
	if got := values(t, all); got != singleValues {
		t.Errorf("attributes %s, want %s", got, singleValues)
	}
	p.until("reported", func([]slice) bool { return p.ListProblem() != "" && p.Problem("a") == "" })
}

// An error of the server is handled like the answer to a write. If the question is not permitted, the
// devices are published without lists.
func TestQuestionFails(t *testing.T) {
	t.Parallel()
	t.Run("unavailable", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		var left atomic.Int32
		left.Store(3)
		s.Fault(func(r *http.Request, _ kubeapitest.Object) int {
			if r.URL.RawQuery == "dryRun=All" && left.Add(-1) >= 0 {
				return []int{http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusInternalServerError}[left.Load()]
			}
			return 0
		})
		p := start(t, s)
		p.Set(listed("a"))
		all := p.until("published", has("a"))
		if !strings.Contains(values(t, all), `"ints":[0,1]`) || p.ListProblem() != "" {
			t.Errorf("attributes %s, problem %q, want lists", values(t, all), p.ListProblem())
		}
	})
	// A webhook, the rights, and an admission policy, which answers like the validation with a cause
	// that names no field.
	for code, message := range map[int]string{
		http.StatusBadRequest:          "admission webhook does not support dry run",
		http.StatusForbidden:           "not permitted",
		http.StatusUnprocessableEntity: `ValidatingAdmissionPolicy "x" with binding "x" denied request: no`,
	} {
		t.Run(message, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			s.Refuse(func(r *http.Request) (int, kubeapitest.Object) {
				if r.URL.RawQuery != "dryRun=All" {
					return 0, nil
				}
				return code, kubeapitest.Object{
					"kind": "Status", "code": code, "message": message,
					"details": kubeapitest.Object{"causes": []any{kubeapitest.Object{"message": message}}},
				}
			})
			p := start(t, s)
			p.Set(listed("a"))
			all := p.until("published", has("a"))
			if got := values(t, all); got != singleValues {
				t.Errorf("attributes %s, want %s", got, singleValues)
			}
			p.until("reported", func([]slice) bool { return strings.Contains(p.ListProblem(), message) && p.Problem("a") == "" })
		})
	}
}

// The slice of devices with lists, which the types and rules of Kubernetes accept
// (test/e2e/resourceapi).
func TestSliceWithListsIsGolden(t *testing.T) {
	t.Parallel()
	n := newNodeSlices(nil, "node-1")
	n.uid = "6b3f1e2a-0000-4000-8000-000000000001"
	list := append(listed("both"), devices("one", "none")...)
	list[1].NUMA = []int{1}
	specs, _ := n.specs(sorted(list), nil, time.Now())
	text, err := json.MarshalIndent(n.object(0, specs[0]), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "lists.json", append(text, '\n'))
}

// The agent learns of the problem at once, without another event.
func TestListProblemIsAnnounced(t *testing.T) {
	t.Parallel()
	announced := 0
	p := New(Options{Changed: func() { announced++ }, Log: slog.New(slog.DiscardHandler)})
	for _, problem := range []string{"x", "x", ""} {
		p.update(func(now *state) { now.listless = problem })
	}
	if announced != 2 {
		t.Errorf("%d announcements, want one for the problem and one for its end", announced)
	}
}

// Others read the attributes of a device while lists are left out.
func TestWithoutListsChangesNoDevice(t *testing.T) {
	t.Parallel()
	all := append(listed("a"), devices("b")...)
	for i, d := range withoutLists(sorted(all)) {
		if haveLists([]Device{d}) {
			t.Errorf("device %d has lists: %v", i, d.Attributes)
		}
	}
	if !haveLists(all) {
		t.Error("the devices have lost their lists")
	}
}
