package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// completions are the paths of completion scripts in Debian, by shell.
var completions = map[string]string{
	"bash": "/usr/share/bash-completion/completions/generic-dp",
	"zsh":  "/usr/share/zsh/vendor-completions/_generic-dp",
	"fish": "/usr/share/fish/vendor_completions.d/generic-dp.fish",
}

// manual writes the man page and the completion scripts, which it makes with the program, and
// returns the installed path of each file.
func (r *release) manual(ctx context.Context, dir string) (map[string]string, error) {
	i := slices.IndexFunc(platforms, func(p platform) bool { return p.arch == runtime.GOARCH })
	if i < 0 {
		return nil, fmt.Errorf("no platform for %s, which would run the program", runtime.GOARCH)
	}
	binary, err := r.build(ctx, platforms[i])
	if err != nil {
		return nil, err
	}
	run := func(args ...string) (string, error) {
		text, err := exec.CommandContext(ctx, binary, args...).Output()
		if err != nil {
			return "", fmt.Errorf("generic-dp %s: %w", strings.Join(args, " "), err)
		}
		return string(text), nil
	}
	installed := map[string]string{}
	write := func(name, text, target string) error {
		file := filepath.Join(dir, name)
		installed[file] = target
		return os.WriteFile(file, []byte(text), 0o644)
	}
	for shell, target := range completions {
		text, err := run("completion", shell)
		if err == nil {
			err = write(shell, text, target)
		}
		if err != nil {
			return nil, err
		}
	}
	page, err := manPage(r.version, run)
	if err != nil {
		return nil, err
	}
	// Debian's policy wants compressed pages. Without a time in the header, builds are equal.
	var compressed bytes.Buffer
	w, err := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(w, page); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	err = write("generic-dp.1.gz", compressed.String(), "/usr/share/man/man1/generic-dp.1.gz")
	return installed, err
}

var (
	commandLine = regexp.MustCompile(`(?m)^  ([a-z]+) +\S.*$`)
	flagLine    = regexp.MustCompile(`^ {2,6}((?:-\w, )?--[a-z-]+(?: \w+)?) {2,}(\S.*)$`)
)

// manPage is one page for all commands, made of their --help.
func manPage(version string, run func(args ...string) (string, error)) (string, error) {
	help, err := run("--help")
	if err != nil {
		return "", err
	}
	var page bytes.Buffer
	fmt.Fprintf(&page, ".TH GENERIC-DP 1 \"\" \"generic-dp %s\" \"User Commands\"\n.SH NAME\ngeneric-dp \\- generic Kubernetes device plugin, configured in TOML\n", roff(version))
	fmt.Fprintf(&page, ".SH SYNOPSIS\n.B generic-dp\n.I command\n.RI [ flags ]\n.SH DESCRIPTION\n")
	_, list, _ := strings.Cut(help, "\nAvailable Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	help, _, _ = strings.Cut(help, "\nUse \"generic-dp [command]")
	section(&page, help)
	fmt.Fprintf(&page, ".SH COMMANDS\n")
	for _, m := range commandLine.FindAllStringSubmatch(list, -1) {
		if m[1] == "help" || m[1] == "completion" {
			continue
		}
		text, err := run(m[1], "--help")
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&page, ".SS %s\n", m[1])
		section(&page, text)
	}
	page.WriteString(manEnd)
	return page.String(), nil
}

// manEnd is the part of the man page that no help text has.
const manEnd = `.SH EXIT STATUS
.TP
.B 0
success
.TP
.B 1
a failure, or a problem that was reported: an invalid configuration, a problem that doctor found
.TP
.B 2
an invalid command line
.SH FILES
.TP
.I /etc/generic\-dp/*.toml
the configuration; /usr/share/doc/generic\-dp/config/reference.toml has every key
.TP
.I /run/generic\-dp
links that follow devices, health directories, and the lock of the serving instance (\-\-run\-dir)
.TP
.I /var/lib/generic\-dp
the last good configuration, and decisions about device IDs (\-\-state\-dir)
.TP
.I /var/run/cdi/generic\-dp_*
CDI specs (\-\-cdi\-dir)
.TP
.I /var/lib/kubelet/device\-plugins
sockets of the kubelet and of the plugin (\-\-kubelet\-dir)
.SH EXAMPLES
.TP
List the hardware of this host, and write a configuration for a stick:
.nf
generic\-dp devices \-\-all
generic\-dp init /dev/ttyUSB0 > /etc/generic\-dp/config.toml
.fi
.TP
Check a configuration, and show what a container would get:
.nf
generic\-dp check
generic\-dp try \-\-once
.fi
.TP
Ask why a resource has no device, and what the running instance serves:
.nf
generic\-dp explain zigbee
generic\-dp status
.fi
.TP
Show what an edit would change, before it is applied:
.nf
generic\-dp check new.toml \-\-against /etc/generic\-dp
.fi
.TP
Record the devices of this host for a bug report:
.nf
generic\-dp snapshot \-\-redact host.txtar
.fi
.SH SEE ALSO
/usr/share/doc/generic\-dp/README.md
`

// section writes a help text unfilled, and its flags, whose lines are long, as a list.
func section(page *bytes.Buffer, help string) {
	fmt.Fprintln(page, ".nf")
	for line := range strings.SplitSeq(strings.TrimSpace(help), "\n") {
		if m := flagLine.FindStringSubmatch(line); m != nil {
			fmt.Fprintf(page, ".fi\n.TP\n.B %s\n%s\n.nf\n", roff(m[1]), roff(m[2]))
			continue
		}
		if line == "" {
			line = ".PP" // also ends a list of flags
		} else {
			line = roff(line)
		}
		fmt.Fprintln(page, line)
	}
	fmt.Fprintln(page, ".fi")
}

// roff escapes a line of text for roff.
func roff(line string) string {
	line = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(line)
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		line = `\&` + line
	}
	return line
}
