package kubeapi_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
)

// readName reads the field name of an object and skips the others.
func readName(d *kubeapi.Decoder) (name string, err error) {
	err = d.Fields(func(field string) error {
		if field == "name" {
			return d.Value(&name)
		}
		return d.Skip()
	})
	return name, err
}

func TestStream(t *testing.T) {
	t.Parallel()
	stop := errors.New("stop")
	for body, want := range map[string]struct {
		events string
		code   int
		err    error
	}{
		`{"type":"ADDED","object":{"a":[{}],"name":"x","b":null}}{"type":"DELETED","object":{"name":"y"}}`: {events: "ADDED x, DELETED y"},
		`{"type":"ADDED","object":{"name":"x"}}{"type":"ERROR","object":{"code":410,"reason":"x"}}`:        {events: "ADDED x", code: 410},
		`{"type":"SKIP","object":{"name":{"name":[1,"x"]}}}{"type":"ADDED","object":null}`:                 {events: "SKIP , ADDED "},
		`{"type":"STOP","object":{"name":"x"}}{"type":"ADDED","object":{}}`:                                {events: "", err: stop},
		`{"type":"ADDED","object":{"name":"x"}}{"type":"ADDED","obj`:                                       {events: "ADDED x", err: io.ErrUnexpectedEOF},
		`{"type":"ADDED","object":{"name":"x"}}{"type":"ADDED","object":{`:                                 {events: "ADDED x", err: io.ErrUnexpectedEOF},
	} {
		c := kubeapi.New(start(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }))
		var events []string
		err := c.Stream(t.Context(), "/a?watch=1", time.Minute, func(kind string, object *kubeapi.Decoder) error {
			if kind == "" {
				return nil
			}
			if kind == "STOP" {
				return stop
			}
			name := ""
			if kind != "SKIP" {
				var err error
				if name, err = readName(object); err != nil {
					return err
				}
			}
			events = append(events, kind+" "+name)
			return nil
		})
		got := strings.Join(events, ", ")
		if got != want.events || kubeapi.Code(err) != want.code || want.code == 0 && !errors.Is(err, want.err) {
			t.Errorf("%s: %q, %v", body, got, err)
		}
	}
}

// Of an event of 12 MB only what is read is in memory, also of one long string. The live heap is
// measured while the server writes. What the sockets hold (up to 6 MiB) is not read yet.
func TestStreamOfLargeEvents(t *testing.T) {
	escape := `\u003c`
	before := liveHeap()
	var most atomic.Uint64
	c := kubeapi.New(start(t, func(w http.ResponseWriter, _ *http.Request) {
		repeat := func(size int, text string) {
			n := size / len(text)
			for i := range n {
				_, _ = io.WriteString(w, text)
				if i%(n/4) == 0 {
					most.Store(max(most.Load(), liveHeap()))
				}
			}
		}
		_, _ = io.WriteString(w, `{"type":"ADDED","object":{"list":[`)
		repeat(2<<20, `{"id":"`+strings.Repeat("x", 80)+`"},`)
		_, _ = io.WriteString(w, `null],"text":"`)
		repeat(8<<20, strings.Repeat("ä", 500))
		_, _ = io.WriteString(w, `","name":"a`)
		repeat(2<<20, strings.Repeat(escape, 1000))
		_, _ = io.WriteString(w, `"}}`)
	}))
	name := ""
	err := c.Stream(t.Context(), "/a", time.Minute, func(kind string, object *kubeapi.Decoder) (err error) {
		if kind != "" {
			name, err = readName(object)
		}
		return err
	})
	if err != nil || len(name) < 80 || len(name) > 512 || strings.Trim(name[1:], "<") != "" {
		t.Errorf("name %.600q, %v: want the beginning of the string", name, err)
	}
	if grown := int64(most.Load()) - int64(before); most.Load() == 0 || grown > 4<<20 {
		t.Errorf("the live heap grew by %d KiB, want less than the event", grown>>10)
	}
}

// liveHeap returns the bytes of the heap that are in use.
func liveHeap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// Strings are cut between characters, and the text around them is the same.
func TestStreamCutsStrings(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"x", "ä", "€", "😀", `\"`, `\\`, `\u00e4`, `\n`} {
		var body strings.Builder
		var whole []string
		for shift := range 8 {
			text := strings.Repeat("x", shift) + strings.Repeat(part, 600)
			var name string
			if err := json.Unmarshal([]byte(`"`+text+`"`), &name); err != nil {
				t.Fatal(err)
			}
			whole = append(whole, name)
			body.WriteString(`{"type":"ADDED","object":{"list":["` + text + `"],"name":"` + text + `"}}{"type":"ADDED","object":{"name":"y"}}`)
		}
		c := kubeapi.New(start(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body.String()) }))
		var names []string
		err := c.Stream(t.Context(), "/a", time.Minute, func(kind string, object *kubeapi.Decoder) error {
			if kind == "" {
				return nil
			}
			name, err := readName(object)
			names = append(names, name)
			return err
		})
		if err != nil || len(names) != 16 {
			t.Fatalf("%q: %d events, %v", part, len(names), err)
		}
		for i, name := range whole {
			cut := names[2*i]
			isPrefix := strings.HasPrefix(name, cut)
			if names[2*i+1] != "y" || cut == name || !isPrefix {
				t.Errorf("%q: %.600q after %d bytes", part, cut, i)
			}
		}
	}
}

// What nests without end, or never ends, is an error.
func TestStreamOfEndlessEvents(t *testing.T) {
	t.Parallel()
	for _, endless := range []string{`[`, `{"a":`, `"` + strings.Repeat("x", 400) + `",`} {
		c := kubeapi.New(start(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"type":"ADDED","object":[`)
			for chunk := bytes.Repeat([]byte(endless), 1<<8); ; {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}))
		err := c.Stream(t.Context(), "/a", time.Minute, func(string, *kubeapi.Decoder) error { return nil })
		if err == nil {
			t.Errorf("%q without end is no error", endless)
		}
	}
}

// A list is read page by page; a page that is too large is read as smaller ones.
func TestList(t *testing.T) {
	t.Parallel()
	const objects = 60
	sizes := map[int]bool{}
	c := kubeapi.New(start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refused" {
			w.WriteHeader(http.StatusGone)
			return
		}
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		sizes[limit] = true
		if r.URL.Path == "/large" {
			_, _ = io.WriteString(w, `{"items":[{"text":"`+strings.Repeat("x", 5<<20)+`"}]}`)
			return
		}
		var items []string
		for i := from; i < min(from+limit, objects); i++ {
			items = append(items, `{"number":`+strconv.Itoa(i)+`,"text":"`+strings.Repeat("x", 75<<10)+`"}`)
		}
		next := ""
		if from+limit < objects {
			next = strconv.Itoa(from + limit)
		}
		fmt.Fprintf(w, `{"metadata":{"resourceVersion":"7","continue":%q},"items":[%s]}`, next, strings.Join(items, ","))
	}))
	var got []int
	version, err := c.List(t.Context(), "/objects?fieldSelector=a%3Db", func(object json.RawMessage) error {
		var o struct{ Number int }
		err := json.Unmarshal(object, &o)
		got = append(got, o.Number)
		return err
	})
	isSorted := slices.IsSorted(got)
	if err != nil || version != "7" || len(got) != objects || !isSorted {
		t.Errorf("%d objects, sorted %t, version %q, %v; want %d", len(got), isSorted, version, err, objects)
	}
	if !sizes[100] || !sizes[25] || len(sizes) != 2 {
		t.Errorf("pages of %v, want 100, then 25", sizes)
	}
	if _, err := c.List(t.Context(), "/large", func(json.RawMessage) error { return nil }); !errors.Is(err, kubeapi.ErrTooLarge) {
		t.Errorf("an object that is too large: %v", err)
	}
	if _, err := c.List(t.Context(), "/refused", nil); kubeapi.Code(err) != http.StatusGone {
		t.Errorf("a version that is gone: %v", err)
	}
}
