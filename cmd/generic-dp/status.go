package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/internal/status"
)

// statusLimit is how long status waits for an answer. An instance itself waits up to half a second
// for the kubelet.
const statusLimit = 5 * time.Second

// statusReport is the status of an instance. received is the status as it was sent: an instance of
// a newer version may send more than Status has.
type statusReport struct {
	status.Status
	received json.RawMessage
}

// MarshalJSON returns the status as it was received.
func (r statusReport) MarshalJSON() ([]byte, error) { return r.received, nil }

func newStatus(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "show the devices of a running instance, their health and their holders",
		Long: `status queries the instance that listens at --listen on this machine. In a
cluster: kubectl exec POD -- /generic-dp status`,
		Args: noArgs,
	}
	f.add(cmd, []string{"listen"})
	query := func(cmd *cobra.Command, _ []string) (reporter, error) {
		r, err := f.status(cmd.Context())
		if err != nil {
			return nil, err // not a nil *statusReport in an interface
		}
		return r, nil
	}
	return reports(cmd, query, "json", "yaml")
}

// statusAddress returns the address to query for --listen.
func (f *flags) statusAddress() (string, error) {
	host, port, err := net.SplitHostPort(f.listen)
	if err != nil {
		return "", fmt.Errorf("--listen: %w: want an address such as 127.0.0.1:9418", err)
	}
	isUnspecified := host == "" || net.ParseIP(host).IsUnspecified()
	if isUnspecified {
		host = "127.0.0.1" // an instance only serves its status on loopback
	}
	return net.JoinHostPort(host, port), nil
}

// status queries the instance at --listen.
func (f *flags) status(ctx context.Context) (*statusReport, error) {
	address, err := f.statusAddress()
	if err != nil {
		return nil, err
	}
	body, err := get(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	r := &statusReport{received: body}
	err = json.Unmarshal(body, &r.Status)
	if err != nil {
		return nil, fmt.Errorf("--listen: no generic-dp answers at %s: %w", address, err)
	}
	return r, nil
}

// get requests the status from the instance at an address.
func get(ctx context.Context, address string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/status.json", nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{
		Timeout:   statusLimit,
		Transport: &http.Transport{}, // the default one would use a proxy
	}
	resp, err := client.Do(req)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("no instance at %s: %w\n  hint: --listen is the address that the instance was given with its own --listen",
			address, syscall.ECONNREFUSED)
	}
	if err != nil {
		cause := errors.Unwrap(err) // without the method and the URL, which *url.Error adds
		return nil, fmt.Errorf("no generic-dp answers at %s: %w", address, cause)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s: %s", address, resp.Status, strings.TrimSpace(string(body)))
	}
	return body, nil
}
