package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/google/go-cmp/cmp"
)

// If the library accepts a text, the scan finds exactly its keys; and each resource
// decodes separately like in the whole, unless the library loses a key.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		"a = 1\n[[resource]]\nx = \"[[resource]]\"\n[[ resource ]]\nx = '''\n[[resource]]\n'''\n",
		"[[resource]]\nmatch = [\n{ a = 1 }, # [[resource]]\n]\n[[\"resource\"]]\r\nmatch.b = 2\r\n[resource.c]\nd = [[1],\n[2]]\n",
		"[[resource]]\n[[resource.match]]\na.b = 1\n[[resource.match]]\na.c = \"\"\"x\\\"\"\"\"\"\"\n\t[['resource']]\n",
		"resource = [{}]\n[other]\n[[resource]]\n[other.x]\n",
		"[[resource]]\n[a]\nb = 1\n[[resource]]\n[a]\nb = 2\n",
		"\"a\\u0042\".'c d' = { e.f = [ 1, {g = 1979-05-27 07:32:00}, [], [{}] ], h = [{i = 1}, {i.j = inf}], } # x\n",
		"a = {b = 1}\n[a.c]\nd = 1\n",
		"[[resource]][[resource]]",
		"[a.b]\n[a]\nc.d = +1_0\n[[a.e]]\nf = 1\n[a.e.g]\n[[a.e]]\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		scanned := scan(s, 0)
		if scanned.problem != "" {
			t.Skip()
		}
		parts, _, err := decodeResources(s, scanned.resources)
		var whole map[string]any
		_, wholeErr := toml.Decode(s, &whole)
		switch {
		case err != nil && wholeErr != nil:
			return
		case wholeErr != nil && strings.Contains(wholeErr.Error(), "already been defined"):
			return // an unknown table may have several parts
		case err != nil || wholeErr != nil:
			t.Fatalf("in parts: %v; whole: %v", err, wholeErr)
		}
		if scanned.root.lost(whole) != nil {
			return
		}
		if diff := cmp.Diff(whole["resource"], parts["resource"]); diff != "" {
			t.Fatalf("resources (-whole +parts):\n%s", diff)
		}
		if diff := cmp.Diff(decodedKeys("", whole), scanned.root.scannedKeys("")); diff != "" {
			t.Fatalf("keys (-library +scan):\n%s", diff)
		}
	})
}

// decodedKeys lists the decoded keys, with the elements of lists that are tables or
// lists.
func decodedKeys(above string, raw any) (keys []string) {
	items, _ := elements(raw)
	for i, item := range items {
		_, isTable := item.(map[string]any)
		_, isList := elements(item)
		if isTable || isList {
			place := fmt.Sprintf("%s[%d]", above, i)
			keys = append(append(keys, place), decodedKeys(place, item)...)
		}
	}
	table, _ := raw.(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(table)) {
		place := fmt.Sprintf("%s.%q", above, key)
		keys = append(append(keys, place), decodedKeys(place, table[key])...)
	}
	return keys
}

func (n *node) scannedKeys(above string) (keys []string) {
	for i, item := range n.items {
		if item != nil {
			place := fmt.Sprintf("%s[%d]", above, i)
			keys = append(append(keys, place), item.scannedKeys(place)...)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(n.keys)) {
		place := fmt.Sprintf("%s.%q", above, key)
		keys = append(append(keys, place), n.keys[key].scannedKeys(place)...)
	}
	return keys
}
