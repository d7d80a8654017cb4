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

	"github.com/generic-dp/generic-dp/internal/status"
)

// statusLimit bounds the wait for an answer. An instance waits for the kubelet for
// half a second at most.
const statusLimit = 5 * time.Second

// statusReport is the status of an instance, decoded and as received: the instance may be of
// another version.
type statusReport struct {
	status.Status
	received json.RawMessage
}

func (r statusReport) MarshalJSON() ([]byte, error) { return r.received, nil }

func newStatus(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "show the devices of a running instance, their health and their holders",
		Long: `status queries the instance that listens at --listen on this machine. In a
cluster: kubectl exec POD -- /generic-dp status`,
		Args: noArgs,
	}
	cmd.Flags().AddFlagSet(f.pick("listen"))
	return reports(cmd, func(cmd *cobra.Command, _ []string) (reporter, error) {
		r, err := f.status(cmd.Context())
		if err != nil {
			return nil, err
		}
		return r, nil
	}, "json", "yaml")
}

// status queries the instance at --listen.
func (f *flags) status(ctx context.Context) (*statusReport, error) {
	host, port, err := net.SplitHostPort(f.listen)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w: want one such as 127.0.0.1:9418", err)
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
	r := &statusReport{received: body}
	if err := json.Unmarshal(body, &r.Status); err != nil {
		return nil, fmt.Errorf("--listen: no generic-dp answers at %s: %w", address, err)
	}
	return r, nil
}

// table writes the content of the status page as text.
func (s statusReport) table(w io.Writer, _ bool) error {
	state := "ready"
	if len(s.NotReady) > 0 {
		state = "not ready"
	}
	fmt.Fprintf(w, "generic-dp %s, %s, %s since %s\n", s.Version, state, s.Command, s.Started.UTC().Format(time.DateTime))
	fmt.Fprintf(w, "configuration %s, generation %d, loaded %s\n", s.Config.Path, s.Config.Generation, s.Config.Loaded.UTC().Format(time.DateTime))
	put := func(indent string, lines ...string) {
		for _, line := range lines {
			wrap(w, indent, line)
		}
	}
	for _, alert := range s.Alerts() {
		fmt.Fprintf(w, "%s:\n", alert.Heading)
		put("  ", alert.Lines...)
	}
	if s.HeldUnknown != "" {
		fmt.Fprintf(w, "Holders are unknown: %s\n", s.HeldUnknown)
	}
	s.ProblemsFirst()
	for _, r := range s.Resources {
		fmt.Fprintln(w)
		put("", r.Title()+": "+summary(r))
		for _, d := range r.Devices {
			used := "?"
			if s.HeldUnknown == "" {
				used = strconv.Itoa(len(d.Held))
			}
			put("  ", fmt.Sprintf("%s, %s/%d used: %s", d.Health, used, d.Slots, d.ID))
			put("    ", d.Reason)
			put("    ", strings.Join(d.Host(), " "))
			if len(d.NUMA) > 0 {
				put("    ", "NUMA "+joinInts(d.NUMA))
			}
			var holders []string
			for _, h := range d.Held {
				holders = append(holders, "held by "+h.Namespace+"/"+h.Pod+"/"+h.Container)
			}
			put("    ", fold(holders, 0)...)
		}
		if len(r.Devices) == 0 {
			put("  ", cmp.Or(r.NoDevices, "no device matches on this host"))
		}
	}
	if len(s.Events) > 0 {
		fmt.Fprintln(w)
	}
	var lines []string
	for _, e := range s.Events {
		lines = append(lines, strings.Join([]string{e.Time.UTC().Format(time.DateTime), e.Resource, e.ID, e.What}, " "))
	}
	put("", fold(lines, len(time.DateTime))...)
	return nil
}

// summary is a resource in a few words.
func summary(r status.Resource) string {
	if len(r.Devices) == 0 {
		return "no device"
	}
	slots := r.Slots.All()
	words := []string{fmt.Sprintf("%s, %s", count(len(r.Devices), "device"), count(slots, "slot"))}
	if r.Slots.Held != nil {
		words[0] = fmt.Sprintf("%d/%d used", *r.Slots.Held, slots)
	}
	if r.Slots.Unhealthy > 0 {
		words = append(words, fmt.Sprintf("%d unhealthy", r.Slots.Unhealthy))
	}
	if r.Retired {
		words = append(words, "no longer configured")
	}
	return strings.Join(words, ", ")
}

// fold replaces consecutive equal lines by the last of them and their number, "... x3".
// Their first bytes, a time, may differ.
func fold(lines []string, first int) (folded []string) {
	for i := 0; i < len(lines); {
		n := 1
		for i+n < len(lines) && lines[i+n][first:] == lines[i][first:] {
			n++
		}
		line := lines[i+n-1]
		if n > 1 {
			line += " x" + strconv.Itoa(n)
		}
		folded, i = append(folded, line), i+n
	}
	return folded
}

// columns is the width of the narrowest common terminal.
const columns = 80

// wrap writes words in lines of at most 80 columns, unless one word is longer.
func wrap(w io.Writer, indent, text string) {
	line, next := "", indent+"  "
	for _, word := range strings.Fields(text) {
		if line != "" && len(indent)+len(line)+1+len(word) > columns {
			fmt.Fprintln(w, indent+line)
			line, indent = "", next
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	if line != "" {
		fmt.Fprintln(w, indent+line)
	}
}
