package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// If the library accepts a text, the scan finds exactly its keys and values, unless the library loses
// a key. The parts are valid if the whole is.
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
		if scanned.problem != "" || !utf8.ValidString(s) {
			t.Skip() // Parse refuses other encodings
		}
		_, err := checkSyntax(s, scanned.resources)
		var whole map[string]any
		_, wholeErr := toml.Decode(s, &whole)
		switch {
		case err != nil && wholeErr != nil:
			return
		case err == nil && scanned.stopped:
			t.Fatalf("only the scan refuses the text, at %d", scanned.at)
		case wholeErr != nil && strings.Contains(wholeErr.Error(), "already been defined"):
			return // an unknown table may have several parts
		case err != nil || wholeErr != nil:
			t.Fatalf("in parts: %v; whole: %v", err, wholeErr)
		}
		lossless := plain(scanned.root)
		if len(decodedKeys("", whole)) < len(decodedKeys("", lossless)) {
			return // the library has lost a key
		}
		if diff := cmp.Diff(normal(whole), lossless, cmpopts.EquateNaNs()); diff != "" {
			t.Fatalf("values (-library +scan):\n%s", diff)
		}
	})
}

// plain returns the value of a node as the library decodes it.
func plain(n *node) any {
	if items, isList := n.list(); isList {
		all := make([]any, len(items))
		for i := range items {
			all[i] = plain(items[i])
		}
		return all
	}
	keys := n.table()
	if keys == nil {
		return n.raw
	}
	all := make(map[string]any)
	for name := range keys {
		all[name] = plain(keys[name])
	}
	return all
}

// normal returns a value of the library with one type for all lists.
func normal(raw any) any {
	switch x := raw.(type) {
	case map[string]any:
		all := make(map[string]any)
		for name := range x {
			all[name] = normal(x[name])
		}
		return all
	case []map[string]any:
		all := make([]any, len(x))
		for i := range x {
			all[i] = normal(x[i])
		}
		return all
	case []any:
		all := make([]any, len(x))
		for i := range x {
			all[i] = normal(x[i])
		}
		return all
	}
	return raw
}

// decodedKeys lists the keys of a value, with the elements of lists.
func decodedKeys(above string, raw any) (keys []string) {
	raw = normal(raw)
	items, _ := raw.([]any)
	for i, item := range items {
		place := fmt.Sprintf("%s[%d]", above, i)
		keys = append(append(keys, place), decodedKeys(place, item)...)
	}
	table, _ := raw.(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(table)) {
		place := fmt.Sprintf("%s.%q", above, key)
		keys = append(append(keys, place), decodedKeys(place, table[key])...)
	}
	return keys
}
