package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// fakeKubectl stands for kubectl in scripts and in the documentation. The cluster is in the
// directories that $CLUSTER lists, separated by colons:
//
//   - *.yaml are objects.
//   - NODE.status is the status of the instance on a node, in YAML. kubectl exec runs this program
//     on the recorded machine that the annotation "machine" of the node names, and the program asks
//     that instance.
//   - config is the configuration of all nodes.
func fakeKubectl() {
	cluster, err := readFakeCluster(filepath.SplitList(os.Getenv("CLUSTER"))...)
	if err == nil {
		cluster.forbidden = strings.Fields(os.Getenv("FORBIDDEN"))
		cluster.machines = os.Getenv("MACHINES")
		err = cluster.run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)
	}
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// Run implements plugin.Kubectl, in this process.
func (c *fakeCluster) Run(ctx context.Context, _ []byte, args ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	err := c.run(ctx, args, &stdout, &stderr)
	if err != nil {
		err = fmt.Errorf("%s%w", &stderr, err)
	}
	return stdout.Bytes(), err
}

type fakeObject = map[string]any

// fakeCluster is the objects and files of a cluster. Later directories take precedence.
type fakeCluster struct {
	dirs    []string
	objects []fakeObject
	// forbidden are the kinds that the user may not read.
	forbidden []string
	// machines is the directory of recorded machines.
	machines string
}

func readFakeCluster(dirs ...string) (*fakeCluster, error) {
	c := &fakeCluster{dirs: dirs}
	for _, dir := range c.dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if err := c.read(file); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	if len(c.objects) == 0 {
		return nil, errors.New("fake kubectl: $CLUSTER has no object")
	}
	return c, nil
}

func (c *fakeCluster) read(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	decoder := yaml.NewDecoder(f)
	for {
		var object fakeObject
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		// An object in a later directory replaces an earlier one.
		c.objects = slices.DeleteFunc(c.objects, func(o fakeObject) bool { return identity(o) == identity(object) })
		c.objects = append(c.objects, object)
	}
}

// field returns a text at a path of an object.
func field(o fakeObject, path ...string) string {
	var value any = o
	for _, key := range path {
		inner, _ := value.(fakeObject)
		value = inner[key]
	}
	if value == nil {
		return ""
	}
	return fmt.Sprint(value)
}

func identity(o fakeObject) string {
	return field(o, "kind") + " " + namespaceOf(o) + " " + field(o, "metadata", "name")
}

func namespaceOf(o fakeObject) string {
	if namespace := field(o, "metadata", "namespace"); namespace != "" {
		return namespace
	}
	return "default"
}

// fakeCall is a parsed command line.
type fakeCall struct {
	words       []string
	namespace   string
	all         bool
	labels      string
	fields      string
	ignore      bool
	stdin       bool
	container   string
	inContainer []string
}

func parseFakeCall(args []string) fakeCall {
	call := fakeCall{namespace: "default"}
	values := map[string]*string{"-n": &call.namespace, "-l": &call.labels, "--field-selector": &call.fields, "-c": &call.container, "-o": new(string)}
	switches := map[string]*bool{"--all-namespaces": &call.all, "--ignore-not-found": &call.ignore, "-i": &call.stdin}
	for i := 0; i < len(args); i++ {
		value, hasValue := values[args[i]]
		isSet, isSwitch := switches[args[i]]
		switch {
		case args[i] == "--":
			call.inContainer = args[i+1:]
			return call
		case hasValue:
			i++
			*value = args[i]
		case isSwitch:
			*isSet = true
		case strings.HasPrefix(args[i], "--context="), strings.HasPrefix(args[i], "--kubeconfig="):
		default:
			call.words = append(call.words, args[i])
		}
	}
	return call
}

func (c *fakeCluster) run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	call := parseFakeCall(args)
	verb := call.words[0]
	call.words = call.words[1:]
	if verb == "exec" {
		return c.exec(ctx, call, stdout, stderr)
	}
	return c.get(call, stdout)
}

// get prints objects as kubectl does: a list, or an object for one name.
func (c *fakeCluster) get(call fakeCall, stdout io.Writer) error {
	kind := strings.TrimSuffix(call.words[0], "s")
	if kind == "deviceclasse" {
		kind = "deviceclass"
	}
	names := call.words[1:]
	isNamespaced := kind == "pod" || kind == "event" || kind == "resourceclaim"
	found := []fakeObject{}
	for _, o := range c.objects {
		isKind := strings.EqualFold(field(o, "kind"), kind)
		isHere := !isNamespaced || call.all || namespaceOf(o) == call.namespace
		isNamed := len(names) == 0 || slices.Contains(names, field(o, "metadata", "name"))
		if isKind && isHere && isNamed && hasLabels(o, call.labels) && hasFields(o, call.fields) {
			if isNamespaced {
				o["metadata"].(fakeObject)["namespace"] = namespaceOf(o)
			}
			found = append(found, o)
		}
	}
	switch {
	case slices.Contains(c.forbidden, kind):
		return fmt.Errorf("Error from server (Forbidden): %ss is forbidden: User \"jane\" cannot list resource \"%[1]ss\" at the cluster scope", kind)
	case len(names) == 1 && len(found) == 1:
		return json.NewEncoder(stdout).Encode(found[0])
	case len(names) > 0 && len(found) < len(names) && !call.ignore:
		return fmt.Errorf("Error from server (NotFound): %ss %q not found", kind, names[0])
	case len(names) == 1:
		return nil
	}
	return json.NewEncoder(stdout).Encode(fakeObject{"kind": "List", "items": found, "metadata": fakeObject{"resourceVersion": ""}})
}

func hasLabels(o fakeObject, selector string) bool {
	key, value, _ := strings.Cut(selector, "=")
	return selector == "" || field(o, "metadata", "labels", key) == value
}

func hasFields(o fakeObject, selector string) bool {
	if selector == "" {
		return true
	}
	for condition := range strings.SplitSeq(selector, ",") {
		path, value, _ := strings.Cut(condition, "=")
		if field(o, strings.Split(path, ".")...) != value {
			return false
		}
	}
	return true
}

// find returns an object, nil if there is none.
func (c *fakeCluster) find(kind, name string) fakeObject {
	for _, o := range c.objects {
		if field(o, "kind") == kind && field(o, "metadata", "name") == name {
			return o
		}
	}
	return nil
}

// path is the last existing file or directory of a name.
func (c *fakeCluster) path(name string) string {
	for _, dir := range slices.Backward(c.dirs) {
		file := filepath.Join(dir, name)
		if _, err := os.Stat(file); err == nil {
			return file
		}
	}
	return ""
}

// exec runs this program as if it was in a pod.
func (c *fakeCluster) exec(ctx context.Context, call fakeCall, stdout, stderr io.Writer) error {
	pod := c.find("Pod", call.words[0])
	if pod == nil || call.container == "" {
		return fmt.Errorf("Error from server (NotFound): pods %q not found", call.words[0])
	}
	name := field(pod, "spec", "nodeName")
	node := c.find("Node", name)
	listen, err := c.serveStatus(ctx, name)
	if err != nil {
		return err
	}
	state, err := os.MkdirTemp("", "generic-dp-fleet-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(state)
	args := append([]string{}, call.inContainer[1:]...)
	switch args[0] {
	case "status":
		args = append(args, "--listen="+listen)
	case "check":
		args = append(args, "--listen="+listen)
		fallthrough
	default:
		args = append(args, "--config="+c.path("config"), "--state-dir="+state)
		if machine := field(node, "metadata", "annotations", "machine"); machine != "" {
			args = append(args, "--sysfs="+filepath.Join(c.machines, machine+".txtar"))
		}
	}
	if code := run(ctx, args, stdout, stderr); code != 0 {
		return fmt.Errorf("command terminated with exit code %d", code)
	}
	return nil
}

// serveStatus serves the status of a node as its instance does, and returns the address.
func (c *fakeCluster) serveStatus(ctx context.Context, node string) (string, error) {
	file := c.path(node + ".status")
	if file == "" {
		return "127.0.0.1:1", nil // tcpmux: nobody listens
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var status fakeObject
	if err := yaml.Unmarshal(text, &status); err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(status)
	})
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	go func() { _ = http.Serve(listener, answer) }()
	return listener.Addr().String(), nil
}
