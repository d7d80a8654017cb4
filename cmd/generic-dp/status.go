package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/metrics"
)

// statusLimit bounds the wait for an answer. An instance waits for the kubelet for
// half a second at most.
const statusLimit = 5 * time.Second

func newStatus(f *flags) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "show the devices of a running instance, their health and their holders",
		Long: `status queries the instance that listens at --listen on this machine. In a
cluster: kubectl exec POD -- /generic-dp status`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			body, err := f.fetchStatus(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				_, err = cmd.OutOrStdout().Write(body)
				return err
			}
			var s metrics.Status
			if err := json.Unmarshal(body, &s); err != nil {
				return fmt.Errorf("--listen: no generic-dp answers at %s: %w", f.listen, err)
			}
			return printStatus(cmd.OutOrStdout(), s)
		},
	}
	cmd.Flags().AddFlagSet(f.pick("listen"))
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// fetchStatus queries the instance at --listen.
func (f *flags) fetchStatus(ctx context.Context) ([]byte, error) {
	host, port, err := net.SplitHostPort(f.listen)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
		host = "127.0.0.1" // the status is served on loopback only
	}
	address := net.JoinHostPort(host, port)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/status.json", nil)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	client := http.Client{Timeout: statusLimit, Transport: &http.Transport{}} // without a proxy
	resp, err := client.Do(req)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("--listen: no instance at %s: %w\n  hint: name the address that the instance was given with --listen", address, syscall.ECONNREFUSED)
	case err != nil:
		return nil, fmt.Errorf("--listen: no generic-dp answers at %s: %w", address, errors.Unwrap(err)) // of *url.Error
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return nil, fmt.Errorf("--listen: %w", err)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("--listen: %s answers %s: %s", address, resp.Status, strings.TrimSpace(string(body)))
	}
	return body, nil
}

// printStatus writes the content of the status page as text.
func printStatus(w io.Writer, s metrics.Status) error {
	state := "ready"
	if len(s.NotReady) > 0 {
		state = "not ready"
	}
	fmt.Fprintf(w, "generic-dp %s, %s, %s since %s\n", s.Version, state, s.Command, s.Started.UTC().Format(time.DateTime))
	fmt.Fprintf(w, "configuration %s, generation %d, loaded %s\n", s.Config.Path, s.Config.Generation, s.Config.Loaded.UTC().Format(time.DateTime))
	for _, alert := range s.Alerts() {
		fmt.Fprintf(w, "%s:\n  %s\n", alert.Heading, strings.Join(alert.Lines, "\n  "))
	}
	if s.HeldUnknown != "" {
		fmt.Fprintf(w, "Holders are unknown: %s\n", s.HeldUnknown)
	}
	fmt.Fprintln(w)
	tab := newTable(w, "RESOURCE", "ID", "SLOTS", "HEALTH", "NUMA", "NODES", "HELD BY", "REASON")
	for _, r := range s.Resources {
		for _, d := range r.Devices {
			tab.row(r.Name, d.ID, strconv.Itoa(d.Slots), d.Health, joinInts(d.NUMA), strings.Join(d.Host(), ","), strings.Join(d.Holders(), ","), d.Reason)
		}
		if len(r.Devices) == 0 {
			tab.row(r.Name, "", "", "", "", "", "", cmp.Or(r.NoDevices, "no device matches on this host"))
		}
	}
	if err := tab.Flush(); err != nil || len(s.Events) == 0 {
		return err
	}
	fmt.Fprintln(w)
	tab = newTable(w, "TIME", "RESOURCE", "ID", "EVENT")
	for _, e := range s.Events {
		tab.row(e.Time.UTC().Format(time.DateTime), e.Resource, e.ID, e.What)
	}
	return tab.Flush()
}
