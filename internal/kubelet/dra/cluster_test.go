//go:build cluster

package dra

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
)

// The tests of this file run against a real API server and scheduler, with the service
// account of the chart: test/e2e/cluster starts them.
var (
	serverURL = flag.String("server", "", "URL of an API server")
	caFile    = flag.String("ca", "", "its CA certificates")
	adminFile = flag.String("admin", "", "token of an administrator")
)

const namespace = "generic-dp"

type anyObject = map[string]any

// cluster is what an administrator sees.
type cluster struct {
	t testing.TB
	*kubeapi.Client
	log slog.Level
}

func newCluster(t testing.TB) *cluster {
	if *serverURL == "" {
		t.Skip("needs the flag -server")
	}
	return &cluster{t: t, Client: kubeapi.New(kubeapi.Config{Server: *serverURL, CA: *caFile, Token: *adminFile})}
}

func (c *cluster) create(path string, o anyObject) (out anyObject) {
	c.t.Helper()
	if err := c.Create(c.t.Context(), path, o, &out); err != nil && kubeapi.Code(err) != http.StatusConflict {
		c.t.Fatal(err)
	}
	return out
}

// class creates the DeviceClass of a resource.
func (c *cluster) class(resource string) {
	c.t.Helper()
	_, expression, _ := strings.Cut(device.ClassManifest(resource), "expression: ")
	c.create("/apis/resource.k8s.io/v1/deviceclasses", anyObject{
		"metadata": anyObject{"name": device.ClassName(resource)},
		"spec": anyObject{
			"extendedResourceName": resource,
			"selectors":            []any{anyObject{"cel": anyObject{"expression": strings.TrimSpace(expression)}}},
		},
	})
}

// node makes a node, a pod of the service account on it, and a client with its token.
func (c *cluster) node(name string) *kubeapi.Client {
	c.t.Helper()
	meta := anyObject{"name": name, "labels": anyObject{"kubernetes.io/hostname": name}}
	c.create("/api/v1/nodes", anyObject{"metadata": meta})
	status := anyObject{
		"metadata": meta,
		"status": anyObject{
			"allocatable": anyObject{"cpu": "8", "memory": "8Gi", "pods": "110"},
			"capacity":    anyObject{"cpu": "8", "memory": "8Gi", "pods": "110"},
			"conditions":  []any{anyObject{"type": "Ready", "status": "True", "lastHeartbeatTime": time.Now().UTC().Format(time.RFC3339)}},
		},
	}
	if err := c.Update(c.t.Context(), "/api/v1/nodes/"+name+"/status", status, nil); err != nil {
		c.t.Fatal(err)
	}
	pod := "driver-" + name
	c.create("/api/v1/namespaces/"+namespace+"/pods", anyObject{
		"metadata": anyObject{"name": pod},
		"spec": anyObject{
			"nodeName": name, "serviceAccountName": namespace,
			"tolerations": []any{anyObject{"operator": "Exists"}},
			"containers":  []any{anyObject{"name": "c", "image": "none"}},
		},
	})
	token := c.create("/api/v1/namespaces/"+namespace+"/serviceaccounts/"+namespace+"/token", anyObject{
		"spec": anyObject{"boundObjectRef": anyObject{"kind": "Pod", "apiVersion": "v1", "name": pod}},
	})
	file := filepath.Join(c.t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token["status"].(anyObject)["token"].(string)), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return kubeapi.New(kubeapi.Config{Server: *serverURL, CA: *caFile, Token: file})
}

// publish publishes the devices of a node.
func (c *cluster) publish(api *kubeapi.Client, node string) *published {
	p := &published{List: new(List)}
	p.Plugin = New(Quiet(Options{API: api, Node: node, Devices: p.List, Claims: &cdi.Writer{Dir: c.t.TempDir()}, Metadata: c.t.TempDir(), Log: slog.New(slog.NewTextHandler(c.t.Output(), &slog.HandlerOptions{Level: c.log}))}))
	p.accept()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = p.Publish(ctx) })
	c.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return p
}

// slices are those of a node.
func (c *cluster) slices(node string) []slice {
	c.t.Helper()
	var list struct{ Items []slice }
	if err := c.Get(c.t.Context(), newNodeSlices(nil, node).selector(), &list); err != nil {
		c.t.Fatal(err)
	}
	return list.Items
}

// until polls: the API has no event for each of the conditions of these tests.
func (c *cluster) until(what string, ok func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); {
		if time.Now().After(deadline) {
			c.t.Fatalf("not %s", what)
		}
		select {
		case <-c.t.Context().Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (c *cluster) untilHas(node string, ids ...string) []slice {
	c.t.Helper()
	slices.Sort(ids)
	var all []slice
	c.until(fmt.Sprintf("published %d devices", len(ids)), func() bool {
		all = c.slices(node)
		var got []string
		for _, s := range all {
			for _, d := range s.Spec.Devices {
				got = append(got, *d.Attributes["id"].String)
			}
		}
		slices.Sort(got)
		return slices.Equal(got, ids)
	})
	return all
}

// A node's token writes the slices of that node, and no other.
func TestClusterOwnSlicesOnly(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	mine, theirs := c.node("mine"), c.node("theirs")
	c.publish(theirs, "theirs").Set(devices("b"))
	c.untilHas("theirs", "b")

	p := c.publish(mine, "theirs")
	p.Set(devices("a"))
	const want = "a pod on node mine may write the ResourceSlices of that node only"
	c.until("denied: "+want, func() bool { return strings.Contains(p.Problem(""), want) })
	if !strings.Contains(p.Problem(""), "set dra.enabled") {
		t.Errorf("problem %q does not say what to set", p.Problem(""))
	}
	s := c.slices("theirs")[0]
	if err := mine.Delete(t.Context(), slicesPath+"/"+s.Metadata.Name); kubeapi.Code(err) != http.StatusUnprocessableEntity && kubeapi.Code(err) != http.StatusForbidden {
		t.Errorf("deletion of another node's slice: %v, want it denied", err)
	}
	// A slice of the node in the pool of another one would hide or taint the devices of
	// that, and one with the name of another's keep it from being made.
	for what, test := range map[string]struct {
		name string
		spec anyObject
		want string
	}{
		"another driver": {"mine-" + Driver + "-9", anyObject{"driver": "other.example.com", "nodeName": "mine"}, "only the ResourceSlices of driver"},
		"another pool":   {"mine-" + Driver + "-9", anyObject{"pool": anyObject{"name": "theirs", "generation": 99, "resourceSliceCount": 1}, "nodeName": "mine"}, "pool and name"},
		"another name":   {"theirs-" + Driver + "-1", anyObject{"nodeName": "mine"}, "pool and name"},
		"all nodes":      {"mine-" + Driver + "-9", anyObject{"allNodes": true}, want},
	} {
		spec := anyObject{"driver": Driver, "pool": anyObject{"name": "mine/generic-dp", "generation": 1, "resourceSliceCount": 1}}
		maps.Copy(spec, test.spec)
		if err := mine.Create(t.Context(), slicesPath, anyObject{"metadata": anyObject{"name": test.name}, "spec": spec}, nil); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want it denied: %s", what, err, test.want)
		}
	}
	if err := mine.Delete(t.Context(), slicesPath); kubeapi.Code(err) != http.StatusForbidden {
		t.Errorf("deletion of all slices: %v, want it forbidden", err)
	}
	c.untilHas("theirs", "b")
	c.publish(mine, "mine").Set(devices("a"))
	c.untilHas("mine", "a")
	// The token has no other right.
	for _, path := range []string{"/api/v1/pods", "/api/v1/nodes", "/api/v1/secrets", "/apis/resource.k8s.io/v1/resourceclaims", "/apis/resource.k8s.io/v1/deviceclasses"} {
		if err := mine.Get(t.Context(), path, nil); kubeapi.Code(err) != http.StatusForbidden {
			t.Errorf("list of %s: %v, want it forbidden", path, err)
		}
	}
}
