package matchers_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/matchers"
)

// lists are the attributes of the only device of a resource that are lists, and the device's problem.
// snapshot is of the server with two sockets.
func lists(t *testing.T, snapshot *device.Snapshot, top, resource string, host *fakeHost) (map[string]device.Typed, device.Offer) {
	t.Helper()
	cfg := parse(t, top+"\n[[resource]]\nname = \"x\"\napi = \"dra\"\n"+resource)
	offers := matchers.Match(cfg, snapshot, nil, matchers.Options{Host: host, NodeName: "worker-1"}).Resources[0].Offers
	if len(offers) != 1 {
		t.Fatalf("%d devices, want 1", len(offers))
	}
	found := map[string]device.Typed{}
	for name, v := range offers[0].Attributes {
		if v.List != nil {
			found[name] = v
		}
	}
	return found, offers[0]
}

const (
	withLists = "list_attributes = true"
	cards     = "each = \"all\"\nmatch.pci.id = [\"1002:740f\", \"8086:1572\"]\n"
)

func TestLists(t *testing.T) {
	t.Parallel()
	snapshot := machine(t, server)
	places := map[string]device.Typed{
		"resource.kubernetes.io/numaNode": {Type: device.IntType, List: []string{"0", "1"}},
		"resource.kubernetes.io/pcieRoot": {List: []string{"pci0000:3a", "pci0000:ae", "pci0000:d7"}},
	}
	tests := map[string]struct {
		top, resource string
		want          map[string]device.Typed
		problem       string
	}{
		"without the key": {resource: cards},
		"places":          {top: withLists, resource: cards, want: places},
		"places of a group": {
			top: withLists,
			// The group has the vendor of all its cards, whose roots differ.
			resource: "each = \"pci.vendor\"\nmatch.pci.id = \"1002:740f\"",
			want: map[string]device.Typed{
				"resource.kubernetes.io/pcieRoot": {Text: "pci0000:ae", List: []string{"pci0000:ae", "pci0000:d7"}},
			},
		},
		"one place": {top: withLists, resource: `match = { pci.address = "0000:af:00.0" }`},
		"nodes of one device": {
			top: withLists, resource: "match = { pci.address = \"0000:af:00.0\" }\nattributes.nodes = [\"${kernel}\", \"x\", \"${kernel}\"]",
			want: map[string]device.Typed{"nodes": {List: []string{"card1", "renderD128", "x"}}},
		},
		"members": {
			top: withLists,
			// Equal values of members count once.
			resource: cards + `attributes.at = ["${pci.address}"]
attributes.models = { int = ["0x${pci.device}"] }
attributes.kinds = ["a-${pci.vendor}-b", ""]
attributes.flags = [true, false, true]
attributes.versions = { version = ["1.2", "v1.2.0", "2"] }
attributes.none = ["${usb.serial}"]`,
			want: map[string]device.Typed{
				"resource.kubernetes.io/numaNode": places["resource.kubernetes.io/numaNode"],
				"resource.kubernetes.io/pcieRoot": places["resource.kubernetes.io/pcieRoot"],

				"at":       {List: []string{"0000:3b:00.0", "0000:3b:00.1", "0000:af:00.0", "0000:d8:00.0"}},
				"models":   {Type: device.IntType, List: []string{"5490", "29711"}},
				"kinds":    {List: []string{"a-8086-b", "a-1002-b"}},
				"flags":    {Type: device.BoolType, List: []string{"true", "false"}},
				"versions": {Type: device.VersionType, List: []string{"1.2.0", "2.0.0"}},
			},
		},
		"not of the type": {
			top: withLists, resource: cards + `attributes.a = { int = ["${pci.address}"] }`, want: places,
			problem: `attributes.a: "0000:3b:00.0" is not an int: `,
		},
		"two variables with several values": {
			top:      withLists,
			resource: "match = { pci.address = \"0000:af:00.0\" }\nattributes.a = [\"${kernel} ${devnode}\"]",
			problem:  "attributes.a: ${kernel} and ${devnode} have several values each: only one variable of a text may",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.want == nil {
				test.want = map[string]device.Typed{}
			}
			found, offer := lists(t, snapshot, test.top, test.resource, &fakeHost{})
			if diff := cmp.Diff(test.want, found); diff != "" {
				t.Errorf("lists (-want +got):\n%s", diff)
			}
			isAsWanted := strings.HasPrefix(offer.Problem, test.problem) && (test.problem == "") == (offer.Problem == "")
			if !isAsWanted {
				t.Errorf("problem %q, want %q", offer.Problem, test.problem)
			}
		})
	}
}

// A value that cannot be read yet may change which devices a claim gets.
func TestUnreadList(t *testing.T) {
	t.Parallel()
	late := &fakeHost{attr: func(string, string) ([]string, bool) { return nil, true }}
	found, offer := lists(t, machine(t, server), withLists, cards+`attributes.a = ["${attr:x}"]`, late)
	if _, isPublished := found["a"]; isPublished || !strings.Contains(offer.Problem, "can't be read yet") {
		t.Errorf("lists %v, problem %q", found, offer.Problem)
	}
}

// The API server refuses a slice in which a device has more than 48 values. What a device has without
// configuration counts, and gives way.
func TestListsHaveRoom(t *testing.T) {
	t.Parallel()
	snapshot := machine(t, server)
	count := func(o device.Offer) int {
		n := len([]string{"resource", "id"})
		if len(o.NUMA) == 1 {
			n++
		}
		for _, v := range o.Attributes {
			if v.List != nil {
				n += len(v.List)
			} else if v.Text != "" {
				n++
			}
		}
		return n
	}
	list := func(from, to int) string {
		var all []string
		for i := from; i < to; i++ {
			all = append(all, fmt.Sprint(i))
		}
		return "[" + strings.Join(all, ", ") + "]"
	}
	for n := 38; n <= device.MaxAttributeValues; n++ {
		for what, resource := range map[string]string{
			"pool":   cards + "attributes.single = \"x\"\n",
			"single": "match.pci.address = \"0000:af:00.0\"\nattributes.single = 1\n",
		} {
			found, offer := lists(t, snapshot, withLists, resource+"attributes.z = [1]\nattributes.a = "+list(0, n), &fakeHost{})
			if got := count(offer); got > device.MaxAttributeValues {
				t.Errorf("%s: %d values with a list of %d, want at most %d", what, got, n, device.MaxAttributeValues)
			}
			_, isPublished := found["a"]
			isProblem := strings.Contains(offer.Problem, "attributes.a: the device has ")
			if isPublished == isProblem {
				t.Errorf("%s: list of %d is published: %v, problem %q", what, n, isPublished, offer.Problem)
			}
			if n == 38 && (isProblem || found["z"].List == nil) {
				t.Errorf("%s: a list of 38 does not fit: %q, %v", what, offer.Problem, found)
			}
			if n == device.MaxAttributeValues && !isProblem {
				t.Errorf("%s: a list of %d fits: %v", what, n, found)
			}
		}
	}
}

// A pool may have thousands of parts with values of their own. Equal values count once.
func TestListIsLimited(t *testing.T) {
	t.Parallel()
	snapshot := machine(t, server)
	ofDirectory := &fakeHost{attr: func(dir, name string) ([]string, bool) { return []string{dir + " " + name}, false }}
	var different []string
	for i := range 20 {
		different = append(different, fmt.Sprintf("\"${attr:x%d}\"", i))
	}
	_, offer := lists(t, snapshot, withLists, cards+"attributes.a = ["+strings.Join(different, ", ")+"]", ofDirectory)
	if want := "attributes.a: the list has more than 48 values"; !strings.HasPrefix(offer.Problem, want) {
		t.Errorf("problem %q, want %q", offer.Problem, want)
	}
	found, offer := lists(t, snapshot, withLists, cards+"attributes.a = ["+strings.Repeat("0, ", 40)+"]", &fakeHost{})
	if got := found["a"].List; len(got) != 1 || offer.Problem != "" {
		t.Errorf("equal values are %q, problem %q, want one value", got, offer.Problem)
	}
}
