package evict_test

import (
	"net/http"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/testing/kubeapitest"
	"github.com/generic-dp/generic-dp/internal/tools/evict"
)

const (
	allSlices  = "/apis/resource.k8s.io/v1/resourceslices"
	mineClaims = "/apis/resource.k8s.io/v1/namespaces/d/resourceclaims"
	driver     = "generic-dp.github.io"
)

// claimed makes or changes a pod with a claim for an extended resource, which has the device of
// this name on its node.
func (c cluster) claimed(name, node, device string, annotations object) {
	claim := name + "-extended-resources-abcde"
	c.Put(mineClaims+"/"+claim, object{
		"metadata": object{"namespace": "d", "name": claim},
		"status": object{"allocation": object{"devices": object{"results": []any{
			object{"request": "container-0-request-0", "driver": driver, "pool": node, "device": device},
		}}}},
	})
	c.Put(all+"/"+name, object{
		"metadata": object{"namespace": "d", "name": name, "uid": name, "annotations": annotations},
		"spec":     object{"nodeName": node},
		"status": object{"phase": "Running", "extendedResourceClaimStatus": object{
			"resourceClaimName": claim,
			"requestMappings": []any{
				object{"containerName": "c", "resourceName": "example.com/zigbee", "requestName": "container-0-request-0"},
			},
		}},
	})
}

// slice makes or changes the slice of a node, whose devices have taints with these effects.
func (c cluster) slice(node string, effects map[string]string) {
	c.sliceOf(node, node, node, 1, effects)
}

func (c cluster) sliceOf(name, node, pool string, generation int, effects map[string]string) {
	var devices []any
	for device, effect := range effects {
		var taints []any
		if effect != "" {
			taints = []any{object{"key": "other", "effect": "NoSchedule"}, object{"key": driver + "/unhealthy", "value": "gone", "effect": effect}}
		}
		devices = append(devices, object{"name": device, "taints": taints})
	}
	c.PutShared(allSlices+"/"+name, object{
		"metadata": object{"name": name},
		"spec": object{
			"driver": driver, "nodeName": node, "devices": devices,
			"pool": object{"name": pool, "generation": generation, "resourceSliceCount": 1},
		},
	})
}

// claimReads are the names of the pods whose claims were read.
func (c cluster) claimReads() (names []string) {
	for _, r := range c.Requests() {
		if dir, claim := path.Split(r.Path); dir == mineClaims+"/" {
			name, _, _ := strings.Cut(claim, "-")
			names = append(names, name)
		}
	}
	return names
}

// A pod with a device by an extended resource is evicted when its device has the taint for long
// enough, whichever of the two is known first; all other pods stay.
func TestTaintedDevices(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"pods", "slices"} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			pods := func() {
				c.claimed("lost", "node", "gone", nil)
				c.claimed("healthy", "node", "healthy", nil)
				c.claimed("failing", "node", "failing", nil)
				c.claimed("kept", "node", "gone", object{evict.Annotation: "false"})
				c.claimed("elsewhere", "other", "gone", nil)
				c.pod("plain", "Healthy", nil)
			}
			taints := func() {
				c.slice("node", map[string]string{"gone": "NoExecute", "failing": "NoSchedule", "healthy": ""})
				c.slice("other", map[string]string{"gone": "NoSchedule"})
				// The driver of another node claims to have the pool of this one.
				c.sliceOf("hostile", "hostile", "node", 9, map[string]string{"healthy": "NoExecute"})
			}
			if first == "slices" {
				pods, taints = taints, pods
			}
			pods()
			c.start(evict.Options{After: time.Second, DRA: true})
			c.until("watches", func() bool { return len(c.watches()) > 0 })
			begin := time.Now()
			taints()
			c.until("eviction", func() bool { return len(c.reports()) > 0 })
			for _, r := range c.Requests() {
				if took := r.At.Sub(begin); path.Base(r.Path) == "eviction" && took < time.Second {
					t.Errorf("evicted after %s, want a second", took)
				}
			}
			if got, want := c.reports()[0], "lost Evicted: example.com/zigbee gone has been Unhealthy for 1s (taint generic-dp.github.io/unhealthy=gone)"; got != want {
				t.Errorf("event %q, want %q", got, want)
			}
			// The next pod with a device that is lost shows that the others are not late.
			c.claimed("second", "other", "late", nil)
			c.slice("other", map[string]string{"gone": "NoSchedule", "late": "NoExecute"})
			c.until("second", func() bool { return len(c.reports()) > 1 })
			if got := c.evictions(); !slices.Equal(got, []string{"lost", "second"}) {
				t.Errorf("evicted %v, want the pods whose devices are gone", got)
			}
			reads := c.claimReads()
			slices.Sort(reads)
			if want := []string{"elsewhere", "failing", "healthy", "lost", "second"}; !slices.Equal(reads, want) {
				t.Errorf("read the claims of %v, want each once, and only after a taint on the node: %v", reads, want)
			}
		})
	}
}

// The component grants exactly the rights that evict needs for DRA.
func TestRightsWithDRA(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.claimed("lost", "node", "gone", nil)
	c.slice("node", map[string]string{"gone": "NoExecute"})
	c.start(evict.Options{DRA: true})
	c.until("eviction", func() bool { return len(c.reports()) > 0 })
	granted := kubeapitest.Granted(t, "../../../deploy/kustomize/evict/evict.yaml")
	granted = append(granted, kubeapitest.Granted(t, "../../../deploy/kustomize/evict-dra/kustomization.yaml")...)
	slices.Sort(granted)
	if used := c.Used(); !slices.Equal(used, granted) {
		t.Errorf("used: %q, granted: %q", used, granted)
	}
}

// Without the flag, and with a claim of the pod's own, taints evict nobody.
func TestOtherClaims(t *testing.T) {
	t.Parallel()
	for _, dra := range []bool{false, true} {
		c := newCluster(t)
		c.slice("node", map[string]string{"gone": "NoExecute"})
		if !dra {
			c.claimed("lost", "node", "gone", nil)
		}
		c.Put(mineClaims+"/own", object{
			"metadata": object{"namespace": "d", "name": "own"},
			"status": object{"allocation": object{"devices": object{"results": []any{
				object{"request": "r", "driver": driver, "pool": "node", "device": "gone"},
			}}}},
		})
		c.Put(all+"/own", object{
			"metadata": object{"namespace": "d", "name": "own", "uid": "own"},
			"spec":     object{"nodeName": "node", "resourceClaims": []any{object{"name": "own", "resourceClaimName": "own"}}},
			"status":   object{"phase": "Running", "extendedResourceClaimStatus": nil},
		})
		c.start(evict.Options{DRA: dra})
		c.until("watch", func() bool { return len(c.watches()) > 0 })
		c.pod("control", "Unhealthy", nil)
		c.until("control", func() bool { return len(c.reports()) > 0 })
		if got := c.evictions(); !slices.Equal(got, []string{"control"}) {
			t.Errorf("DRA %t: evicted %v, want only the control", dra, got)
		}
	}
}

// A device that returns, or whose old slice counts no longer, keeps its pod.
func TestTaintsThatEnd(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for _, name := range []string{"back", "moved", "deleted"} {
		c.claimed(name, "node-"+name, "stick", nil)
		c.slice("node-"+name, map[string]string{"stick": "NoExecute"})
	}
	text := c.start(evict.Options{After: time.Hour, DRA: true})
	for name, end := range map[string]func(){
		"back": func() { c.slice("node-back", map[string]string{"stick": ""}) },
		// The driver has moved the device to another slice, and was not able to replace the old one.
		"moved": func() { c.sliceOf("second", "node-moved", "node-moved", 2, map[string]string{"stick": ""}) },
		// The watch is too old when the slice is deleted, so that only the next list shows it.
		"deleted": func() { c.Compact(); c.Delete(allSlices + "/node-deleted") },
	} {
		text.until(t, `msg="pod has unhealthy devices" namespace=d pod=`+name)
		end()
		text.until(t, `msg="pod no longer has unhealthy devices" namespace=d pod=`+name)
	}
}

// A disruption budget is honoured.
func TestDisruptionBudgetWithDRA(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.claimed("lost", "node", "stick", nil)
	c.slice("node", map[string]string{"stick": "NoExecute"})
	c.refuseEvictions(budget())
	c.start(evict.Options{DRA: true})
	c.until("both reports", func() bool { return len(c.reports()) == 2 })
	if got := c.reports(); !strings.HasPrefix(got[0], "lost EvictionBlocked: ") || !strings.HasPrefix(got[1], "lost Evicted: ") {
		t.Errorf("events %q, want that the budget blocked it first", got)
	}
}

// A claim that can't be read is read again, and does not keep others from being read.
func TestUnreadableClaim(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var refused atomic.Bool
	c.Fault(func(r *http.Request, _ object) int {
		if strings.HasPrefix(r.URL.Path, mineClaims) && refused.CompareAndSwap(false, true) {
			return http.StatusForbidden
		}
		return 0
	})
	c.claimed("a", "node", "gone", nil)
	c.claimed("b", "node", "gone", nil)
	c.claimed("ended", "node", "gone", nil)
	c.Delete(mineClaims + "/ended-extended-resources-abcde")
	c.slice("node", map[string]string{"gone": "NoExecute"})
	c.start(evict.Options{DRA: true})
	c.until("claims", func() bool { return len(c.claimReads()) == 4 })
	c.until("eviction", func() bool { return len(c.reports()) > 0 })
	if got := c.evictions(); slices.Contains(got, "ended") {
		t.Errorf("evicted %v, want only pods with a claim", got)
	}
}

// Readiness depends on both watches.
func TestReadyWithDRA(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Fault(func(r *http.Request, _ object) int {
		if r.URL.Path == allSlices {
			return http.StatusForbidden
		}
		return 0
	})
	get, options := probed(t)
	options.DRA = true
	text := c.start(options)
	for got := ""; !strings.Contains(got, "resourceslices can't be watched: GET "+allSlices+": 403"); {
		if got = get("/readyz"); !strings.HasPrefix(got, "503 ") {
			t.Fatalf("/readyz: %q, want the reason", got)
		}
	}
	c.Fault(nil)
	text.until(t, `msg="watching resourceslices"`)
	text.until(t, `msg="watching pods"`)
	if got := get("/readyz"); got != "200 OK ok\n" {
		t.Errorf("/readyz: %q", got)
	}
}
