// The tool is everything in a test bed that is not under test: the first process of a
// bed, the pause container of a pod, and a container's workload. It is static, since it
// is the only file of its image.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/test/e2e/inspect"
	"github.com/generic-dp/generic-dp/test/e2e/isolate"
)

const usage = `usage: tool COMMAND [ARGUMENT]...

  pause          reap orphans until a signal comes (pause container)
  run DIR...     inspect, then wait for a signal (container)
  stay DIR...    inspect, then ignore SIGTERM (container)
  inspect DIR... print as JSON the environment, mounts, network devices and the
                 device nodes below each DIR
  open PATH [r|w|rw]
                 open PATH, by default for reading and writing
  dial ADDRESS   connect to a TCP server
  hook FILE      copy standard input, the container's state, to FILE (OCI hook)
  exit CODE      exit with CODE
  hold           prepare the namespaces of a bed, say so, and reap orphans until
                 standard input ends (first process of a bed)
  reboot         end every other process of a bed and what it had mounted

Called as ls, it lists the files that its arguments name.
`

// dialLimit is the timeout of a connection within one machine.
const dialLimit = 5 * time.Second

func main() {
	program := run
	if filepath.Base(os.Args[0]) == "ls" {
		program = list
	}
	err := program(os.Args[1:])
	var code exitCode
	switch {
	case errors.As(err, &code):
		os.Exit(int(code))
	case err != nil:
		fmt.Fprintln(os.Stderr, "tool:", err)
		os.Exit(1)
	}
}

// exitCode is a requested exit status.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

func run(args []string) error {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return exitCode(2)
	}
	switch cmd, args := args[0], args[1:]; cmd {
	case "pause":
		return reapUntil(signalled())
	case "run":
		stop := signalled() // before the report, which permits the test to signal
		if err := printReport(args); err != nil {
			return err
		}
		return reapUntil(stop)
	case "stay":
		signal.Ignore(unix.SIGTERM)
		if err := printReport(args); err != nil {
			return err
		}
		return reapUntil(nil)
	case "inspect":
		return printReport(args)
	case "open":
		return open(args)
	case "dial":
		conn, err := net.DialTimeout("tcp", args[0], dialLimit)
		if err != nil {
			return err
		}
		return conn.Close()
	case "hook":
		state, err := io.ReadAll(os.Stdin)
		if err != nil {
			return err
		}
		return os.WriteFile(args[0], state, 0o644)
	case "exit":
		code, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		return exitCode(code)
	case "hold":
		if err := isolate.Prepare(); err != nil {
			return err
		}
		fmt.Println("ready")
		return reapUntil(inputEnded())
	case "reboot":
		return isolate.Reboot()
	default:
		fmt.Fprint(os.Stderr, usage)
		return exitCode(2)
	}
}

// list prints mode and path of files. It ignores flags.
func list(args []string) error {
	for _, path := range args {
		if strings.HasPrefix(path, "-") {
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		fmt.Println(info.Mode(), path)
	}
	return nil
}

func printReport(dirs []string) error {
	report, err := inspect.Around(dirs...)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(report)
}

func open(args []string) error {
	flag := os.O_RDWR
	if len(args) == 2 {
		modes := map[string]int{"r": os.O_RDONLY, "w": os.O_WRONLY, "rw": os.O_RDWR}
		mode, ok := modes[args[1]]
		if !ok {
			return fmt.Errorf("mode %q, want r, w or rw", args[1])
		}
		flag = mode
	}
	f, err := os.OpenFile(args[0], flag, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// signalled is closed by SIGTERM or SIGINT. A first process without a handler never
// receives them.
func signalled() <-chan struct{} {
	sig := make(chan os.Signal, 1)
	signal.Notify(sig, unix.SIGTERM, unix.SIGINT)
	done := make(chan struct{})
	go func() {
		<-sig
		close(done)
	}()
	return done
}

// inputEnded is closed at the end of standard input, a pipe that closes when the test
// ends in any manner.
func inputEnded() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(done)
	}()
	return done
}

// reapUntil waits for the orphans that the kernel reparents to a first process.
func reapUntil(done <-chan struct{}) error {
	child := make(chan os.Signal, 1)
	signal.Notify(child, unix.SIGCHLD)
	for {
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if pid <= 0 || err != nil {
				break
			}
		}
		select {
		case <-child:
		case <-done:
			return nil
		}
	}
}
