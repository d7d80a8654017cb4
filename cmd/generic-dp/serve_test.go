package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

// systemd is notified after the first scan.
func TestNotifiesSystemd(t *testing.T) {
	t.Parallel()
	dir := kubelettest.TempDir(t)
	config := filepath.Join(dir, "c.toml")
	must(t, os.WriteFile(config, []byte("domain = \"example.com\"\n[[resource]]\nname = \"x\"\nmatch.virtual = [\"a\"]\ncontainer.env.X = \"1\"\n"), 0o600))
	for _, command := range []string{"kubelet", "cdi"} {
		socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, command), Net: "unixgram"})
		must(t, err)
		defer socket.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		own := filepath.Join(dir, command+".d")
		cmd := exec.CommandContext(ctx, "generic-dp", "serve", "--config", config, "--listen", "",
			"--run-dir", own+"/run", "--state-dir", own+"/state", "--cdi-dir", own+"/cdi")
		cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+filepath.Join(dir, command), "KUBERNETES_SERVICE_HOST=")
		if command == "cdi" {
			cmd.Args = append(cmd.Args, "--no-kubelet")
		} else {
			cmd.Args = append(cmd.Args, "--kubelet-dir", own+"/kubelet")
		}
		must(t, cmd.Start())
		heard := func() string {
			deadline, _ := ctx.Deadline()
			_ = socket.SetReadDeadline(deadline)
			text := make([]byte, 100)
			n, err := socket.Read(text)
			if err != nil {
				t.Errorf("%s: %v", command, err)
			}
			return string(text[:n])
		}
		if got := heard(); got != "READY=1" {
			t.Errorf("%s: systemd hears %q, want READY=1", command, got)
		}
		if specs, err := filepath.Glob(own + "/cdi/*.json"); err != nil || (len(specs) == 1) != (command == "cdi") {
			t.Errorf("%s: specs %v, %v at the time of READY", command, specs, err)
		}
		must(t, cmd.Process.Signal(syscall.SIGTERM))
		if got := heard(); got != "STOPPING=1" {
			t.Errorf("%s: systemd hears %q, want STOPPING=1", command, got)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", command, err)
		}
	}
}

// A command that blocks ends soon after SIGTERM, with an error: here nobody reads its output.
func TestEndsWhileItBlocks(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	if _, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("generic-dp", "completion", "bash")
	cmd.Stdout = w
	var text strings.Builder
	cmd.Stderr = &text
	must(t, cmd.Start())
	_ = w.Close()
	killed := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer killed.Stop()
	if _, err := r.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait()
	took := time.Since(began)
	if code := cmd.ProcessState.ExitCode(); code != 1 || took > 3*time.Second || !strings.Contains(text.String(), "stopped by a signal") {
		t.Errorf("exit code %d after %v, %q; want 1 after a second, and the reason", code, took, text.String())
	}
}
