package kubeapi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
)

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
