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
	"github.com/generic-dp/generic-dp/internal/tools/cli"
)

const (
	// statusLimit is how long a command waits for an answer. An instance itself waits up to half
	// a second for the kubelet.
	statusLimit = 5 * time.Second
	// watchInterval is the time between two queries of --watch. An instance has no event to wait
	// for, and a query costs it less than a millisecond.
	watchInterval = 2 * time.Second
)

// statusReport is the output of status. received is the JSON of the instance, which also has the alerts
// of the status page.
type statusReport struct {
	status.Status
	received json.RawMessage
}

// MarshalJSON returns the status as it was received.
func (r *statusReport) MarshalJSON() ([]byte, error) { return r.received, nil }

// newStatus returns the command status. The exit status is 0 for every answer of an instance,
// ready or not, and 1 if none answers. It does not use reports, because of --watch.
func newStatus(f *flags) *cobra.Command {
	isWatching := false
	cmd := &cobra.Command{
		Use:   "status",
		Short: "show the devices of a running instance, their health and their holders",
		Long: `status queries the instance that listens at --listen on this machine. In a
cluster: kubectl exec POD -- /generic-dp status

Problems come last. --watch prints the status again whenever it changes.`,
		Args: cli.NoArgs,
	}
	f.add(cmd, []string{"listen"})
	cmd.Flags().BoolVarP(&isWatching, "watch", "w", false, "print the status again whenever it changes")
	format := cli.OutputFlag(cmd, "table", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		show := func(w io.Writer) error {
			r, err := f.status(cmd.Context())
			if err != nil {
				return err
			}
			return cli.WriteReport(w, *format, r)
		}
		if isWatching {
			return cli.Watch(cmd.Context(), cmd.OutOrStdout(), watchInterval, show)
		}
		return show(cmd.OutOrStdout())
	}
	return cmd
}

// statusAddress returns the address to query for --listen. It fails if --listen is empty, since
// such an instance has no status page.
func (f *flags) statusAddress() (string, error) {
	if f.listen == "" {
		return "", errors.New("--listen is empty: no instance can be asked")
	}
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

// status queries the instance at --listen. It waits at most statusLimit. Fields that an older
// instance does not send are zero.
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

// maxStatus is the largest status, in bytes. The lists of a node may take 48 MiB of memory, and a
// status repeats their IDs with reasons and holders.
const maxStatus = 256 << 20

// get requests the status from the instance at an address and returns it as JSON. Another program
// may listen there, so an error contains its answer.
func get(ctx context.Context, address string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/status.json", nil)
	if err != nil {
		return nil, err
	}
	// The timeout includes the time for reading the answer.
	client := http.Client{
		Timeout:   statusLimit,
		Transport: &http.Transport{DisableKeepAlives: true}, // the default one would use a proxy
	}
	resp, err := client.Do(req)
	// This is the most common failure. The text of *net.OpError would repeat the address.
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("no instance at %s: %w\n  hint: --listen is the address of the instance; one in a pod is asked in its pod: kubectl -n generic-dp exec POD -- /generic-dp status",
			address, syscall.ECONNREFUSED)
	}
	if err != nil {
		cause := errors.Unwrap(err) // without the method and the URL, which *url.Error adds
		return nil, fmt.Errorf("no generic-dp answers at %s: %w", address, cause)
	}
	defer resp.Body.Close()
	// Another program may send without an end.
	body, err := cli.ReadLimited(resp.Body, maxStatus, "the answer of "+address)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s: %s", address, resp.Status, strings.TrimSpace(string(body)))
	}
	return body, nil
}
