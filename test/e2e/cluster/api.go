//go:build cluster

package cluster

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
)

// api is a client for frequent requests: kubectl would use more CPU than the cluster.
type api struct{ client *http.Client }

func newAPI(t testing.TB, b *bed.Bed) *api {
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // of the bed's own loopback device
		DialContext:     b.DialContext,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &api{client: &http.Client{Transport: transport, Timeout: 10 * time.Second}}
}

func (a *api) get(path string) ([]byte, error) { return a.do(http.MethodGet, path, nil) }

func (a *api) do(method, path string, object any) ([]byte, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequest(method, "https://"+address+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, body)
	}
	return body, nil
}

// Get reads an object or a list by its API path.
func Get[T any](c *Cluster, path string) (T, error) {
	var object T
	body, err := c.api.get(path)
	if err == nil {
		err = json.Unmarshal(body, &object)
	}
	return object, err
}

// Node is the node with the control plane.
func (c *Cluster) Node() (v1.Node, error) { return c.NodeOf(bed.NodeName) }

// NodeOf is a node by name.
func (c *Cluster) NodeOf(name string) (v1.Node, error) { return Get[v1.Node](c, "/api/v1/nodes/"+name) }

// Pods lists the pods of a namespace with a label, "app=x".
func (c *Cluster) Pods(namespace, label string) ([]v1.Pod, error) {
	list, err := Get[v1.PodList](c, "/api/v1/namespaces/"+namespace+"/pods?labelSelector="+label)
	return list.Items, err
}

const podsPath = "/api/v1/namespaces/" + v1.NamespaceDefault + "/pods"

// CreatePod creates a pod in the namespace default.
func (c *Cluster) CreatePod(t testing.TB, pod *v1.Pod) {
	t.Helper()
	if _, err := c.api.do(http.MethodPost, podsPath, pod); err != nil {
		t.Fatal(err)
	}
}

// DeletePod deletes such a pod, without waiting.
func (c *Cluster) DeletePod(t testing.TB, name string) {
	t.Helper()
	if _, err := c.api.do(http.MethodDelete, podsPath+"/"+name, nil); err != nil {
		t.Fatal(err)
	}
}

// Kubectl runs kubectl with input, and fails the test if it fails.
func (c *Cluster) Kubectl(t testing.TB, input string, args ...string) string {
	t.Helper()
	return c.command(t, input, "kubectl", append([]string{"--kubeconfig", c.kubeconfig}, args...)...)
}

// TryKubectl is Kubectl for a command that may fail.
func (c *Cluster) TryKubectl(input string, args ...string) (string, error) {
	return c.Try(input, c.Tool("kubectl"), append([]string{"--kubeconfig", c.kubeconfig}, args...)...)
}

// Helm runs helm, and fails the test if it fails.
func (c *Cluster) Helm(t testing.TB, args ...string) string {
	t.Helper()
	return c.command(t, "", "helm", append([]string{"--kubeconfig", c.kubeconfig}, args...)...)
}

func (c *Cluster) command(t testing.TB, input, program string, args ...string) string {
	t.Helper()
	text, err := c.Try(input, c.Tool(program), args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, text)
	}
	return text
}

// Kubeconfig is the administrator's, for clients in the bed.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// Try runs a program in the bed and returns its output.
func (c *Cluster) Try(input, program string, args ...string) (string, error) {
	cmd := exec.Command(program, args...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "HOME="+c.dir) // for caches
	cmd.Stdin = strings.NewReader(input)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	err := c.Do(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	return out.String(), err
}

// ClientArgs are the flags of a client with all rights, for programs in the bed.
func (c *Cluster) ClientArgs(t testing.TB) []string {
	t.Helper()
	return []string{
		"-server=https://" + address,
		"-ca=" + filepath.Join(c.dir, "certificates", "apiserver.crt"),
		"-admin=" + c.write(t, "admin.token", token),
	}
}
