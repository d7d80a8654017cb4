// Package kubeapi is a small client of the Kubernetes API: JSON over HTTPS, with the
// token of the service account. Objects are structs of the caller's own with the few
// fields that it uses.
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
	// CA and Token are files. Both are read again when they rotate.
	CA, Token string
}

// InCluster is the configuration of a pod with a service account's token.
func InCluster() Config {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
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
	// Reason is the API's, "Conflict".
	Reason  string
	Message string
}

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

	mu   sync.Mutex
	ca   []byte
	http *http.Client // for ca; nil before the first request
}

const (
	// answerWithin bounds a request, except for the events of a watch.
	answerWithin = 30 * time.Second
	// maxAnswer bounds an answer.
	maxAnswer = 16 << 20
)

// New makes a Client. Files are read, and the server is connected to, with the first
// request.
func New(c Config) *Client { return &Client{config: c} }

// client returns a client that trusts the CA file as it is now.
func (c *Client) client() (*http.Client, error) {
	ca, err := os.ReadFile(c.config.CA)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.http != nil && bytes.Equal(ca, c.ca) {
		return c.http, nil
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s: no certificate in PEM format", c.config.CA)
	}
	if c.http != nil {
		c.http.CloseIdleConnections()
	}
	// The kernel notices a server that is gone while a watch waits; the process sleeps.
	keepAlive := net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 15 * time.Second, Count: 3}
	c.ca = ca
	c.http = &http.Client{Transport: &http.Transport{
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAliveConfig: keepAlive}).DialContext,
		TLSClientConfig:       &tls.Config{RootCAs: roots},
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: answerWithin,
		IdleConnTimeout:       90 * time.Second,
		WriteBufferSize:       4 << 10,
		ReadBufferSize:        4 << 10,
	}}
	return c.http, nil
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
	Type   string // ADDED, MODIFIED, DELETED
	Object json.RawMessage
}

// Watch calls event for each event of the collection at path, whose query has watch=1,
// until the server ends the stream, which is no error, ctx is cancelled or event fails.
func (c *Client) Watch(ctx context.Context, path string, event func(Event) error) error {
	resp, err := c.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for dec := json.NewDecoder(resp.Body); ; {
		var e Event
		if err := dec.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if e.Type == "ERROR" {
			return failure(http.MethodGet, path, 0, e.Object)
		}
		if err := event(e); err != nil {
			return err
		}
	}
}

func (c *Client) do(ctx context.Context, method, path string, object, into any) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	resp, err := c.send(ctx, method, path, object)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil || into == nil {
		return err
	}
	return json.Unmarshal(body, into)
}

// send returns the response to a request that succeeded.
func (c *Client) send(ctx context.Context, method, path string, object any) (*http.Response, error) {
	client, err := c.client()
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
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	req.Header.Set("Accept", "application/json")
	if object != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	return nil, failure(method, path, resp.StatusCode, text)
}

// failure is the Error of a Status object, or of the answer of a proxy.
func failure(method, path string, code int, text []byte) *Error {
	e := &Error{Method: method, Path: path, Code: code}
	var status struct {
		Code            int
		Reason, Message string
	}
	if json.Unmarshal(text, &status) == nil && status.Code != 0 {
		e.Code, e.Reason, e.Message = status.Code, status.Reason, status.Message
	} else {
		e.Reason, e.Message = http.StatusText(code), strings.TrimSpace(string(text))
	}
	return e
}
