package kubeapi_test

import (
	"bytes"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
)

// start starts a server with this answer, and returns a client's configuration.
func start(t *testing.T, answer http.HandlerFunc) kubeapi.Config {
	t.Helper()
	server := httptest.NewTLSServer(answer)
	t.Cleanup(server.Close)
	dir := t.TempDir()
	c := kubeapi.Config{Server: server.URL, CA: filepath.Join(dir, "ca.crt"), Token: filepath.Join(dir, "token")}
	write(t, c.CA, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	write(t, c.Token, []byte("secret\n"))
	return c
}

func write(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]kubeapi.Error{
		`{"kind":"Status","code":409,"reason":"AlreadyExists","message":"it exists"}`: {Method: "POST", Path: "/a", Code: 409, Reason: "AlreadyExists", Message: "it exists"},
		"<html>from a proxy</html>\n": {Method: "POST", Path: "/a", Code: 502, Reason: "Bad Gateway", Message: "<html>from a proxy</html>"},
		"":                            {Method: "POST", Path: "/a", Code: 502, Reason: "Bad Gateway"},
	} {
		c := kubeapi.New(start(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			_, _ = w.Write([]byte(body))
		}))
		err := c.Create(t.Context(), "/a", struct{}{}, nil)
		var got *kubeapi.Error
		if !errors.As(err, &got) || !reflect.DeepEqual(*got, want) || kubeapi.Code(err) != want.Code {
			t.Errorf("%q: %+v, want %+v", body, err, want)
		}
	}
}

func TestRequests(t *testing.T) {
	t.Parallel()
	type object struct{ Name string }
	c := kubeapi.New(start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("Authorization %q", r.Header.Get("Authorization"))
		}
		body := make([]byte, 100)
		n, _ := r.Body.Read(body)
		_, _ = w.Write([]byte(`{"name":"` + r.Method + " " + r.URL.Path + strings.ReplaceAll(string(body[:n]), `"`, "'") + `"}`))
	}))
	var got object
	for want, do := range map[string]func() error{
		"GET /a":               func() error { return c.Get(t.Context(), "/a?b=c", &got) },
		"POST /a{'Name':'x'}":  func() error { return c.Create(t.Context(), "/a", object{"x"}, &got) },
		"PUT /a/x{'Name':'x'}": func() error { return c.Update(t.Context(), "/a/x", object{"x"}, &got) },
	} {
		if err := do(); err != nil || got.Name != want {
			t.Errorf("%q, %v, want %q", got.Name, err, want)
		}
	}
	if err := c.Delete(t.Context(), "/a/x"); err != nil {
		t.Error(err)
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	stop := errors.New("stop")
	for body, want := range map[string]struct {
		events int
		code   int
		err    error
	}{
		`{"type":"ADDED","object":{}}{"type":"DELETED","object":{}}`:                      {events: 2},
		`{"type":"ADDED","object":{}}{"type":"ERROR","object":{"code":410,"reason":"x"}}`: {events: 1, code: 410},
		`{"type":"STOP","object":{}}{"type":"ADDED","object":{}}`:                         {events: 1, err: stop},
		`{"type":"ADDED","object":{}}{"type":"ADDED","obj`:                                {events: 1, err: io.ErrUnexpectedEOF},
	} {
		c := kubeapi.New(start(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }))
		events := 0
		err := c.Watch(t.Context(), "/a?watch=1", time.Minute, func(e kubeapi.Event) error {
			if e.Type != "" {
				events++
			} else if events > 0 {
				t.Error("the watch begins again")
			}
			if e.Type == "STOP" {
				return stop
			}
			return nil
		})
		if events != want.events || kubeapi.Code(err) != want.code || want.code == 0 && !errors.Is(err, want.err) {
			t.Errorf("%s: %d events, %v", body, events, err)
		}
	}
}

// A dead stream, as behind a proxy that keeps the connection open, ends like one that is
// too old, even if bytes trickle in that make no event.
func TestSilentWatch(t *testing.T) {
	t.Parallel()
	for _, trickle := range []string{"", " "} {
		c := kubeapi.New(start(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte(`{"type":"ADDED","object":{}}{"type":`))
			for r.Context().Err() == nil {
				_, _ = w.Write([]byte(trickle))
				w.(http.Flusher).Flush()
				select {
				case <-r.Context().Done():
				case <-time.After(10 * time.Millisecond):
				}
			}
		}))
		events := 0
		err := c.Watch(t.Context(), "/a?watch=1", 3*time.Second, func(kubeapi.Event) error { events++; return nil })
		if kubeapi.Code(err) != http.StatusGone || events != 2 { // with the one that it began
			t.Errorf("after %d events: %v, want %d", events, err, http.StatusGone)
		}
	}
}

// No answer takes memory without limit, be it of an object, an event or an error; the
// events of a watch together may be longer.
func TestHugeAnswers(t *testing.T) {
	t.Parallel()
	const limit = 4 << 20
	endless := func(w http.ResponseWriter, head string) {
		_, _ = w.Write([]byte(head))
		chunk := bytes.Repeat([]byte("x"), 64<<10)
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}
	c := kubeapi.New(start(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/object":
			endless(w, `{"name":"`)
		case "/event":
			endless(w, `{"type":"ADDED","object":"`)
		case "/error":
			w.WriteHeader(http.StatusBadGateway)
			endless(w, "")
		case "/events":
			event := `{"type":"ADDED","object":"` + strings.Repeat("x", limit/4) + `"}`
			for range 6 {
				_, _ = w.Write([]byte(event))
			}
		}
	}))
	for _, path := range []string{"/object", "/error"} {
		err := c.Get(t.Context(), path, &struct{ Name string }{})
		if err == nil || !strings.Contains(err.Error(), path) || len(err.Error()) > 2000 {
			t.Errorf("%s: %.200v, want a short error that names it", path, err)
		}
	}
	events := 0
	count := func(kubeapi.Event) error { events++; return nil }
	if err := c.Watch(t.Context(), "/event", time.Minute, count); err == nil || events != 1 {
		t.Errorf("an event without end: %v, %d events", err, events)
	}
	if err := c.Watch(t.Context(), "/events", time.Minute, count); err != nil || events != 1+1+6 {
		t.Errorf("many events: %v, %d events", err, events)
	}
}

// Only the API server gets the token.
func TestRedirect(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s with Authorization %q", r.Method, r.URL, r.Header.Get("Authorization"))
	}))
	defer other.Close()
	c := kubeapi.New(start(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+"/stolen", http.StatusTemporaryRedirect)
	}))
	if err := c.Create(t.Context(), "/a", struct{}{}, nil); kubeapi.Code(err) != http.StatusTemporaryRedirect {
		t.Errorf("%v, want the answer", err)
	}
}

// A cluster's CA is replaced while the program runs.
func TestCARotates(t *testing.T) {
	t.Parallel()
	ok := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }
	config := start(t, ok)
	right, err := os.ReadFile(config.CA)
	if err != nil {
		t.Fatal(err)
	}
	write(t, config.CA, []byte(otherCA))
	c := kubeapi.New(config)
	if err := c.Get(t.Context(), "/a", &struct{}{}); err == nil {
		t.Fatal("a server that another CA signed is trusted")
	}
	write(t, config.CA, right)
	if err := c.Get(t.Context(), "/a", &struct{}{}); err != nil {
		t.Error(err)
	}
	write(t, config.CA, []byte("no certificate"))
	if err := c.Get(t.Context(), "/a", &struct{}{}); err == nil || !strings.Contains(err.Error(), config.CA) {
		t.Errorf("%v, want the name of the file", err)
	}
}

// otherCA signed nothing.
const otherCA = `-----BEGIN CERTIFICATE-----
MIIBeDCCAR2gAwIBAgIUGEPIMAocwMXzLv413+Y/gckHAmkwCgYIKoZIzj0EAwIw
EDEOMAwGA1UEAwwFb3RoZXIwIBcNMjYxMTIyMTgwNTA4WhgPMjEyNjEwMjkxODA1
MDhaMBAxDjAMBgNVBAMMBW90aGVyMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE
Sov8wTmPdwAtl+rE6x6iDOha9qmiNL8rnCRqzbi6T+9R+nhBjzqN7SY9L31eV/n0
F3KKIXWpiOpwIynnbUUmUKNTMFEwHQYDVR0OBBYEFMwHHOSIyOoec9VA1MDpGqrj
qOw5MB8GA1UdIwQYMBaAFMwHHOSIyOoec9VA1MDpGqrjqOw5MA8GA1UdEwEB/wQF
MAMBAf8wCgYIKoZIzj0EAwIDSQAwRgIhAJWwPHDyOh1MOCnm8YVt3pCJtoHgXonn
MiNT5Br72NXPAiEAhepxk/NhrqjAoiYXjQ+qu7ZDAwMO7BY/jwV/VO7+fnY=
-----END CERTIFICATE-----`
