//go:build scale

// Command scale measures what thousands of nodes cost an API server: it starts etcd,
// kube-apiserver and kube-scheduler of deps.sh, and runs the publishers of TestScale of package dra
// in one process beside them. It prints a table with a row for each phase. There are no kubelets.
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	etcdURL     = "http://127.0.0.1:23790"
	etcdPeerURL = "http://127.0.0.1:23800"
	apiPort     = "16443"
	apiURL      = "https://127.0.0.1:" + apiPort
	token       = "admin"
	readyWithin = 2 * time.Minute
)

func main() {
	nodes := flag.Int("nodes", 500, "number of nodes")
	claims := flag.Int("claims", 100, "number of claims of each kind")
	version := flag.String("version", "", `suffix of the programs of Kubernetes, such as "-1.37"`)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *nodes, *claims, *version); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// plane is a control plane in a directory of its own.
type plane struct {
	ctx     context.Context
	dir     string
	bin     string
	version string
	parts   []*part
	api     *part
}

// part is a program whose use of CPU and memory is measured.
type part struct {
	name string
	cmd  *exec.Cmd
}

func run(ctx context.Context, nodes, claims int, version string) error {
	bin, err := exec.CommandContext(ctx, "test/e2e/deps.sh", "--bin").Output()
	if err != nil {
		return fmt.Errorf("run this in the root of the repository: %w", err)
	}
	dir, err := os.MkdirTemp("", "scale-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	p := &plane{ctx: ctx, dir: dir, bin: strings.TrimSpace(string(bin)), version: version}
	defer p.stop()
	if err := p.start(); err != nil {
		return err
	}
	if err := p.prepare(); err != nil {
		return err
	}
	return p.measure(nodes, claims)
}

func (p *plane) file(name string) string { return filepath.Join(p.dir, name) }

// start starts all programs, and waits until the API server is ready.
func (p *plane) start() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	files := map[string]string{
		"key":        string(text),
		"tokens.csv": token + `,admin,admin,"system:masters"` + "\n",
		"token":      token,
		"kubeconfig": `apiVersion: v1
kind: Config
clusters: [{name: scale, cluster: {server: "` + apiURL + `", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: ` + token + `}}]
contexts: [{name: scale, context: {cluster: scale, user: admin}}]
current-context: scale
`,
	}
	for name, content := range files {
		if err := os.WriteFile(p.file(name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	_, err = p.run("etcd", "--data-dir", p.file("etcd"), "--unsafe-no-fsync", "--log-level", "error",
		"--quota-backend-bytes", "8589934592",
		"--listen-client-urls", etcdURL, "--advertise-client-urls", etcdURL,
		"--listen-peer-urls", etcdPeerURL, "--initial-advertise-peer-urls", etcdPeerURL,
		"--initial-cluster", "default="+etcdPeerURL)
	if err != nil {
		return err
	}
	if err := p.startAPI(); err != nil {
		return err
	}
	_, err = p.run("kube-scheduler"+p.version, "--kubeconfig", p.file("kubeconfig"), "--leader-elect=false",
		"--secure-port", "0")
	return err
}

// startAPI starts the API server with the default limits of requests.
func (p *plane) startAPI() error {
	api, err := p.run("kube-apiserver"+p.version, "--etcd-servers", etcdURL, "--bind-address", "127.0.0.1",
		"--advertise-address", "127.0.0.1", "--secure-port", apiPort, "--cert-dir", p.file("certificates"),
		"--token-auth-file", p.file("tokens.csv"), "--authorization-mode", "RBAC",
		"--service-cluster-ip-range", "10.96.0.0/24", "--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", p.file("key"), "--service-account-signing-key-file", p.file("key"),
		"--endpoint-reconciler-type", "none")
	if err != nil {
		return err
	}
	p.api = api
	for deadline := time.Now().Add(readyWithin); ; {
		_, err := p.kubectl("", "get", "--raw", "/readyz")
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) || p.ctx.Err() != nil {
			return fmt.Errorf("the API server is not ready: %w", err)
		}
	}
}

// restartAPI ends the API server as an update does, and starts another one.
func (p *plane) restartAPI() error {
	if err := p.api.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	_ = p.api.cmd.Wait() // the exit status is of no interest
	p.parts = slices.DeleteFunc(p.parts, func(other *part) bool { return other == p.api })
	return p.startAPI()
}

func (p *plane) run(name string, args ...string) (*part, error) {
	log, err := os.OpenFile(p.file(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(p.bin, name), args...)
	cmd.Stdout = log
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w: run test/e2e/deps.sh --cluster --next", err)
	}
	started := &part{name: strings.TrimSuffix(name, p.version), cmd: cmd}
	p.parts = append(p.parts, started)
	return started, nil
}

func (p *plane) stop() {
	for i := len(p.parts) - 1; i >= 0; i-- {
		_ = p.parts[i].cmd.Process.Kill()
		_ = p.parts[i].cmd.Wait()
	}
}

func (p *plane) kubectl(input string, args ...string) (string, error) {
	cmd := exec.CommandContext(p.ctx, filepath.Join(p.bin, "kubectl"), append([]string{"--kubeconfig", p.file("kubeconfig")}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// prepare creates the namespace and the rights of the nodes, and the accounts of pods.
func (p *plane) prepare() error {
	for _, args := range [][]string{
		{"create", "namespace", "generic-dp"},
		{"--namespace", "generic-dp", "create", "serviceaccount", "generic-dp"},
		{"--namespace", "default", "create", "serviceaccount", "default"},
		{"apply", "-f", "deploy/dra/generic-dp.yaml"},
	} {
		if _, err := p.kubectl("", args...); err != nil {
			return err
		}
	}
	return nil
}

// measure runs the publishers, and prints what each phase costs.
func (p *plane) measure(nodes, claims int) error {
	tests := p.file("dra.test")
	build := exec.CommandContext(p.ctx, "go", "test", "-c", "-tags", "grpcnotrace,nethttpomithttp2,cluster", "-o", tests, "./internal/kubelet/dra")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	cmd := exec.Command(tests, "-test.v", "-test.run=^TestScale$", "-test.timeout=30m",
		"-server="+apiURL, "-ca="+p.file("certificates/apiserver.crt"), "-admin="+p.file("token"),
		"-scale="+strconv.Itoa(nodes), "-claims="+strconv.Itoa(claims))
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	publishers := &part{name: "publishers", cmd: cmd}
	p.parts = append(p.parts, publishers)
	defer func() {
		p.parts = slices.DeleteFunc(p.parts, func(other *part) bool { return other == publishers })
	}()
	fmt.Printf("%d nodes with 16 devices each; load of the machine: %s\n", nodes, load())
	err = p.follow(stdout)
	if err != nil {
		_ = cmd.Process.Kill()
	}
	return errors.Join(err, cmd.Wait())
}

// follow reads the lines of the publishers.
func (p *plane) follow(output io.Reader) error {
	var phase string
	var before map[string]usage
	var requests map[string]int
	var began time.Time
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		line, isOurs := strings.CutPrefix(lines.Text(), "scale: ")
		if !isOurs {
			fmt.Println(lines.Text())
			continue
		}
		verb, rest, _ := strings.Cut(line, " ")
		switch verb {
		case "begin":
			phase = rest
			before = p.usage()
			requests = p.requests()
			began = time.Now()
		case "restart":
			if err := p.restartAPI(); err != nil {
				return err
			}
			requests = nil // they count from zero
		case "end":
			took := time.Since(began)
			fmt.Printf("\n%s (%.0f s): %s\n", phase, took.Seconds(), rest)
			p.print(before, p.usage(), took)
			fmt.Printf("  requests for slices and nodes: %s\n", difference(requests, p.requests()))
		}
	}
	return lines.Err()
}

// usage is what a process has used.
type usage struct {
	cpu      time.Duration
	resident int // MB
	peak     int // MB, since the start of the process
}

// usage returns the usage of all programs, by name.
func (p *plane) usage() map[string]usage {
	all := map[string]usage{}
	for _, part := range p.parts {
		all[part.name] = usageOf(part.cmd.Process.Pid)
	}
	return all
}

func (p *plane) print(before, after map[string]usage, took time.Duration) {
	for _, part := range p.parts {
		now := after[part.name]
		cpu := now.cpu - before[part.name].cpu
		// A program that was restarted counts from zero.
		if cpu < 0 {
			cpu = now.cpu
		}
		fmt.Printf("  %-15s %6.1f s CPU (%3.0f %% of a core), %5d MB resident, peak %5d MB\n",
			part.name, cpu.Seconds(), 100*cpu.Seconds()/took.Seconds(), now.resident, now.peak)
	}
}

// clockTick is the unit of times in /proc/PID/stat, USER_HZ, on all architectures of Linux that Go
// supports.
const clockTick = 10 * time.Millisecond

// usageOf reads the usage of a process, and returns zeros if it has ended.
func usageOf(pid int) (u usage) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u
	}
	// The name of the program may contain spaces.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	for _, i := range []int{11, 12} { // utime and stime
		ticks, _ := strconv.Atoi(fields[i])
		u.cpu += time.Duration(ticks) * clockTick
	}
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		var kb int
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kb); err == nil {
			u.resident = kb >> 10
		}
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kb); err == nil {
			u.peak = kb >> 10
		}
	}
	return u
}

// requests returns the API server's counts of requests for slices and nodes, by verb and status.
func (p *plane) requests() map[string]int {
	text, err := p.kubectl("", "get", "--raw", "/metrics")
	if err != nil {
		return nil
	}
	counts := map[string]int{}
	for line := range strings.Lines(text) {
		isCount := strings.HasPrefix(line, "apiserver_request_total{")
		isOurs := strings.Contains(line, `resource="resourceslices"`) || strings.Contains(line, `resource="nodes"`)
		if !isCount || !isOurs {
			continue
		}
		value, _ := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
		counts[label(line, "verb")+" "+label(line, "resource")+" "+label(line, "code")] += int(value)
	}
	return counts
}

// label returns the value of a label of a metric.
func label(line, name string) string {
	_, rest, _ := strings.Cut(line, name+`="`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// difference lists the counts that have grown.
func difference(before, after map[string]int) string {
	grown := []string{}
	for name, count := range after {
		if more := count - before[name]; more > 0 {
			grown = append(grown, fmt.Sprintf("%d %s", more, name))
		}
	}
	slices.Sort(grown)
	return strings.Join(grown, ", ")
}

// load is the load of the machine: running and waiting processes in the last minute.
func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	return first
}
