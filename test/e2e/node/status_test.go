package node_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/product"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// statusReport has the tested fields of `generic-dp status -o json`.
type statusReport struct {
	NotReady    []string `json:"not_ready"`
	HeldUnknown string   `json:"held_unknown"`
	Resources   []struct {
		Name       string
		Registered bool
		Slots      struct{ Healthy, Held, Free, Allocatable int }
		Devices    []struct {
			ID, Health string
			Nodes      []string
			Held       []holder
		}
	}
}

type holder struct{ ID, Namespace, Pod, Container string }

// TestStatus queries the holders of a real kubelet.
func TestStatus(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	first, second := adapter("1-1", "A1B2C3D4", 0), adapter("1-2", "E5F6A7B8", 1)
	n.Plug(first.Stick)
	n.Plug(second.Stick)
	n.serve(t, zigbees, "--listen", "127.0.0.1:9418")
	n.Kubelet.WaitAllocatable(t, zigbee, 2)
	n.run(t, bed.Workload("user", zigbee, 1))

	wait.Until(t, limit, "holders in the status", func() error {
		s, err := n.status(t)
		if err != nil {
			return err
		}
		if len(s.Resources) != 1 || len(s.NotReady) > 0 || s.HeldUnknown != "" {
			return fmt.Errorf("%+v", s)
		}
		r := s.Resources[0]
		if !r.Registered || r.Slots.Healthy != 2 || r.Slots.Held != 1 || r.Slots.Free != 1 || r.Slots.Allocatable != 2 || len(r.Devices) != 2 {
			return fmt.Errorf("%+v", r)
		}
		var held []holder
		for _, d := range r.Devices {
			held = append(held, d.Held...)
		}
		if len(held) != 1 || held[0].Namespace != "default" || held[0].Pod != "user-"+bed.NodeName || held[0].Container != "main" ||
			!slices.Contains([]string{first.id(), second.id()}, held[0].ID) {
			return fmt.Errorf("held: %+v", held)
		}
		return nil
	})
}

func (n *node) status(t testing.TB) (s statusReport, err error) {
	t.Helper()
	out, err := n.Output(t, product.Binary(t), "status", "-o", "json", "--listen", "127.0.0.1:9418")
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(out, &s)
}
