// Package kubeapi is a small client of the Kubernetes API: JSON over HTTPS, with the
// token of the service account. Callers define structs with the few fields that they
// use.
package kubeapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// serviceAccount is the directory of a pod's token and CA certificate.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// Config says where the API server is and how to authenticate.
type Config struct {
	// Server is the URL of the API server, "https://10.96.0.1:443".
	Server string
	// CA is a file with the certificates that may sign the certificate of the server.
	CA string
	// Token is a file with the token of a service account. Both files may rotate.
	Token string
}

// InCluster is the configuration of a pod with the token of a service account. The kubelet sets
// the variables in every container.
func InCluster() Config {
	host := os.Getenv("KUBERNETES_SERVICE_HOST")
	port := os.Getenv("KUBERNETES_SERVICE_PORT")
	return Config{
		Server: "https://" + net.JoinHostPort(host, port),
		CA:     serviceAccount + "/ca.crt",
		Token:  serviceAccount + "/token",
	}
}

// Error is the answer of the API server to a request that failed.
type Error struct {
	Method, Path string
	// Code is the HTTP status.
	Code int
	// Reason is the API's reason in one word, such as "Conflict".
	Reason string
	// Message is for people.
	Message string
	// Causes are the problems of single fields of the object, or other causes, if the server
	// names any.
	Causes []Cause
}

// Cause is one cause of an error.
type Cause struct {
	// Field is the field that has a problem, such as "spec.devices[3].name".
	Field string
	// Reason is for programs, in one word, such as "FieldValueInvalid".
	Reason string
	// Message is for people.
	Message string
}

// Error leaves out the query of the path: it has tokens of pages and versions, so that every
// message would differ.
func (e *Error) Error() string {
	path, _, _ := strings.Cut(e.Path, "?")
	return fmt.Sprintf("%s %s: %d %s: %s", e.Method, path, e.Code, e.Reason, e.Message)
}

// Code returns the HTTP status of an Error, or 0 if err is another error.
func Code(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

// Client is a client of one API server. Its methods may be called concurrently.
type Client struct {
	config Config

	mu sync.Mutex
	// ca is the content of the CA file that the transport trusts.
	ca []byte
	// transport is nil before the first request.
	transport *http.Transport
}

const (
	// requestTimeout bounds a request, except for the events of a watch.
	requestTimeout = 30 * time.Second
	// maxResponse bounds a response, a page of a list, and an event of Watch. Objects have
	// at most 1.5 MB or so.
	maxResponse = 4 << 20
	// maxStatus bounds the response to a failed request.
	maxStatus = 1 << 20
	// maxMessage bounds a message in bytes. A proxy may respond with a page of HTML.
	maxMessage = 1000
)

// New makes a Client. The first request reads the files and connects.
func New(c Config) *Client {
	return &Client{config: c}
}

// currentTransport returns a transport that trusts the current CA file. A transport without an
// http.Client follows no redirects, which could send the token to another server.
func (c *Client) currentTransport() (*http.Transport, error) {
	ca, err := os.ReadFile(c.config.CA)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.transport != nil && bytes.Equal(ca, c.ca) {
		return c.transport, nil
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s: no certificate in PEM format", c.config.CA)
	}
	if c.transport != nil {
		c.transport.CloseIdleConnections()
	}
	dialer := &net.Dialer{
		Timeout: 10 * time.Second,
		// The kernel detects a dead server during a watch, without waking the process.
		KeepAliveConfig: net.KeepAliveConfig{
			Enable:   true,
			Idle:     30 * time.Second,
			Interval: 15 * time.Second,
			Count:    3,
		},
	}
	c.ca = ca
	c.transport = &http.Transport{
		DialContext: dialer.DialContext,
		TLSClientConfig: &tls.Config{
			RootCAs: roots,
			// Each claim of a burst needs a connection. To resume a session takes a third of the CPU time
			// of a full handshake, on both sides together.
			ClientSessionCache: tls.NewLRUClientSessionCache(1),
		},
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: requestTimeout,
		IdleConnTimeout:       90 * time.Second,
		MaxIdleConnsPerHost:   32, // claims of a burst of pods are read at once
		WriteBufferSize:       4 << 10,
		ReadBufferSize:        4 << 10,
	}
	return c.transport, nil
}

// Get reads the object or list at path, which may have a query.
func (c *Client) Get(ctx context.Context, path string, into any) error {
	return c.do(ctx, http.MethodGet, path, nil, into)
}

// Create creates an object in the collection at path; into may be nil.
func (c *Client) Create(ctx context.Context, path string, object, into any) error {
	return c.do(ctx, http.MethodPost, path, object, into)
}

// Update replaces the object at path; into may be nil.
func (c *Client) Update(ctx context.Context, path string, object, into any) error {
	return c.do(ctx, http.MethodPut, path, object, into)
}

// Delete deletes the object at path.
func (c *Client) Delete(ctx context.Context, path string) error {
	return c.do(ctx, http.MethodDelete, path, nil, nil)
}

// Event is one event of a watch.
type Event struct {
	// Type is ADDED, MODIFIED, DELETED or BOOKMARK.
	Type string
	// Object is the object after the event.
	Object json.RawMessage
}

// Watch calls event with an empty Event when the server has accepted the request, then for
// each event of the collection at path, whose query has watch=1. It ends when ctx is
// cancelled, when event fails, or when the server ends the stream, which is no error. An
// event larger than 4 MiB is an error, ErrTooLarge.
//
// A stream without an event for the time idle ends with StatusGone, as if its version were
// too old: a proxy may keep a dead stream open, and a restored server has lower versions.
func (c *Client) Watch(
	ctx context.Context,
	path string,
	idle time.Duration,
	event func(Event) error,
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The timer ends a stream on which nothing arrives any more.
	timer := time.AfterFunc(idle, func() {
		cancel(&Error{
			Method:  http.MethodGet,
			Path:    path,
			Code:    http.StatusGone,
			Reason:  "Expired",
			Message: "no event for " + idle.String(),
		})
	})
	defer timer.Stop()
	resp, err := c.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	limited := &limitedReader{reader: resp.Body}
	decoder := json.NewDecoder(limited)
	e := Event{}
	for {
		if err := event(e); err != nil {
			return err
		}
		timer.Reset(idle)
		limited.left = maxResponse // of the next event
		e = Event{}
		err := decoder.Decode(&e)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && ctx.Err() != nil: // nobody wants the rest, or the timer fired
			return context.Cause(ctx)
		case err != nil:
			return requestError(http.MethodGet, path, err)
		case e.Type == "ERROR":
			return statusError(http.MethodGet, path, 0, e.Object)
		}
	}
}

// do sends an object, which may be nil, and decodes the response, unless into is nil.
func (c *Client) do(ctx context.Context, method, path string, object, into any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := c.send(ctx, method, path, object)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(&limitedReader{
		reader: resp.Body,
		left:   maxResponse,
	})
	if err == nil && into != nil {
		err = json.Unmarshal(body, into)
	}
	return requestError(method, path, err)
}

// send returns the response to a request that succeeded.
func (c *Client) send(ctx context.Context, method, path string, object any) (*http.Response, error) {
	transport, err := c.currentTransport()
	if err != nil {
		return nil, err
	}
	// The kubelet replaces the file when four fifths of the token's life are over.
	token, err := os.ReadFile(c.config.Token)
	if err != nil {
		return nil, err
	}
	var body io.Reader
	if object != nil {
		text, err := json.Marshal(object)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.config.Server+path, body)
	if err != nil {
		return nil, err
	}
	bearer := strings.TrimSpace(string(token))
	req.Header.Set("Authorization", "Bearer "+bearer)
	req.Header.Set("Accept", "application/json")
	if object != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, requestError(method, path, err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	// The API server explains a failure in the body.
	defer resp.Body.Close()
	limited := io.LimitReader(resp.Body, maxStatus)
	text, err := io.ReadAll(limited)
	if err != nil {
		return nil, requestError(method, path, err)
	}
	return nil, statusError(method, path, resp.StatusCode, text)
}

// requestError adds the request to an error. nil stays nil.
func requestError(method, path string, err error) error {
	if err == nil {
		return nil
	}
	path, _, _ = strings.Cut(path, "?")
	return fmt.Errorf("%s %s: %w", method, path, err)
}

// statusError is the Error of a Status object. A proxy on the way to the API server responds
// with some other text.
func statusError(method, path string, code int, text []byte) *Error {
	e := &Error{
		Method:  method,
		Path:    path,
		Code:    code,
		Reason:  http.StatusText(code),
		Message: strings.TrimSpace(string(text)),
	}
	var status struct {
		Code            int
		Reason, Message string
		Details         struct{ Causes []Cause }
	}
	err := json.Unmarshal(text, &status)
	isStatus := err == nil && status.Code != 0
	if isStatus {
		e.Code = status.Code
		e.Reason = status.Reason
		e.Message = status.Message
		e.Causes = status.Details.Causes
	}
	e.Message = short(e.Message)
	for i := range e.Causes {
		cause := &e.Causes[i]
		cause.Message = short(cause.Message)
	}
	return e
}

// short cuts a message at the end of a character.
func short(message string) string {
	if len(message) > maxMessage {
		return strings.ToValidUTF8(message[:maxMessage], "") + "…"
	}
	return message
}
