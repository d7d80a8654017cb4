package config

import (
	"fmt"
	"strings"

	"github.com/generic-dp/generic-dp/device"
)

// interpreted are names that mean something to whoever reads them: a prefix with "*" at
// its end, a domain and those below it with "." at its beginning, or a whole name.
type interpreted struct{ name, by string }

// annotations are those that a container runtime, or a program around it, interprets: they
// inject devices, mounts and hooks that no match selects, or lift limits of the container.
var annotations = []interpreted{
	{".k8s.io", "Kubernetes and CDI"},        // pkg/cdi/annotations.go of the CDI library: cdi.k8s.io/
	{".kubernetes.io", "Kubernetes"},         // pkg/rdt of goresctrl, pkg/blockio: classes; AppArmor and seccomp profiles
	{"io.kubernetes.*", "runtimes"},          // CRI-O, pkg/annotations: Devices, userns-mode; containerd, internal/cri/annotations
	{".crio.io", "CRI-O"},                    // pkg/annotations/v2: devices.crio.io
	{".cri-o.io", "CRI-O"},                   // the same: seccomp-profile.kubernetes.cri-o.io
	{"io.containerd.*", "containerd"},        // the options of its shims
	{".containerd.io", "containerd"},         // core/runtime/restart: programs for logs
	{".nri.io", "plugins of NRI"},            // plugins/device-injector of containerd/nri: devices, mounts, cdi-devices
	{".noderesource.dev", "plugins of NRI"},  // containers/nri-plugins
	{"io.containers.*", "hooks of runtimes"}, // oci-seccomp-bpf-hook: writes a file of the host
	{"io.podman.*", "Podman"},
	{"org.systemd.property.*", "runc"}, // libcontainer/specconv: properties of the unit
	{"org.criu.*", "runc"},             // docs/checkpoint-restore.md: a file of the host
	{"org.opencontainers.*", "runtimes"},
	{"run.oci.*", "crun"},                                         // crun.1: hooks.stdout is a file of the host
	{"module.wasm.image*", "crun"},                                // its handlers
	{"io.katacontainers.*", "Kata Containers"},                    // src/runtime/pkg/katautils: paths of hypervisor and kernel
	{"io.kata-containers.*", "Kata Containers"},                   // as it was called before
	{"com.github.containers.virtcontainers.*", "Kata Containers"}, // in older versions
	{"dev.gvisor.*", "gVisor"},                                    // runsc/specutils: flags of runsc
	{"io.microsoft.*", "hcsshim"},                                 // internal/annotations
}

// environment are variables by which the loader or an interpreter runs code, or by which a
// runtime injects devices. A resource with the name of another vendor's would have them in
// containers that trust that vendor.
var environment = []interpreted{
	{"LD_*", "the loader"},              // ld.so(8): LD_PRELOAD, LD_AUDIT
	{"GLIBC_TUNABLES", "the C library"}, // the same
	{"GCONV_PATH", "the C library"},     // iconv(3): modules of character sets
	{"PATH", "the shell"},               // execvp(3)
	{"BASH_*", "bash"},                  // bash(1): BASH_ENV, BASH_FUNC_name%%
	{"ENV", "the shell"},                // sh(1p)
	{"PROMPT_COMMAND", "bash"},          // bash(1)
	{"PS4", "bash"},                     // the same: PS4 is expanded
	{"SHELLOPTS", "bash"},               // the same
	{"IFS", "the shell"},                // the same
	{"ZDOTDIR", "zsh"},                  // zsh(1)
	{"PYTHON*", "Python"},               // python(1): PYTHONPATH, PYTHONSTARTUP, PYTHONHOME
	{"PERL*", "Perl"},                   // perlrun(1): PERL5LIB, PERL5OPT, PERL5DB
	{"RUBY*", "Ruby"},                   // ruby(1): RUBYOPT, RUBYLIB
	{"GEM_*", "Ruby"},                   // gem(1)
	{"NODE_OPTIONS", "Node.js"},
	{"NODE_PATH", "Node.js"},      // node(1): NODE_OPTIONS, NODE_PATH
	{"JAVA_TOOL_OPTIONS", "Java"}, // java(1): agents
	{"JDK_JAVA_OPTIONS", "Java"},  // the same
	{"_JAVA_OPTIONS", "Java"},     // the same
	{"CLASSPATH", "Java"},         // the same
	{"LUA_*", "Lua"},              // lua(1): LUA_INIT, LUA_PATH
	{"PHPRC", "PHP"},
	{"PHP_INI_SCAN_DIR", "PHP"}, // php(1): PHPRC, PHP_INI_SCAN_DIR
	{"R_PROFILE*", "R"},
	{"R_ENVIRON*", "R"},                               // ?Startup: R_PROFILE
	{"DOTNET_STARTUP_HOOKS", ".NET"},                  // docs/design/features/host-startup-hook.md of dotnet/runtime
	{"CORECLR_*", ".NET"},                             // the same repository: CORECLR_PROFILER_PATH
	{"GIT_*", "git"},                                  // git(1): GIT_SSH_COMMAND, GIT_CONFIG_COUNT
	{"OPENSSL_*", "OpenSSL"},                          // openssl-env(7): OPENSSL_CONF, OPENSSL_MODULES
	{"NVIDIA_VISIBLE_DEVICES", "a container runtime"}, // nvidia-container-runtime: any GPU of the host
	{"NVIDIA_MIG_*", "a container runtime"},           // the same
	{"NVIDIA_IMEX_CHANNELS", "a container runtime"},   // the same
	{"AMD_VISIBLE_DEVICES", "a container runtime"},    // ROCm/container-toolkit
	{"HABANA_VISIBLE_DEVICES", "a container runtime"}, // habana-container-runtime
	{"ASCEND_VISIBLE_DEVICES", "a container runtime"}, // ascend-docker-runtime
}

// interpretedBy returns who interprets a name, "" for nobody. With open variables, whose
// numbers only a container tells, digits do not count.
func interpretedBy(list []interpreted, name string, open bool) string {
	comparable := func(s string) string {
		return strings.Map(func(r rune) rune {
			if open && '0' <= r && r <= '9' {
				return -1
			}
			return r
		}, s)
	}
	name = comparable(name)
	domain, _, _ := strings.Cut(name, "/")
	for _, i := range list {
		want := comparable(i.name)
		prefix, isPrefix := strings.CutSuffix(want, "*")
		if name == want || isPrefix && strings.HasPrefix(name, prefix) || want[0] == '.' && strings.HasSuffix("."+domain, want) {
			return i.by
		}
	}
	return ""
}

// interpretedKey is interpretedBy of a key that has the values of a device.
func interpretedKey(list []interpreted, key device.Text) string {
	return interpretedBy(list, key.Expand(func(string) (string, bool) { return "0", true }).String(), len(key.Vars()) > 0)
}

// CheckAnnotation returns an error if a container must not have an annotation.
func CheckAnnotation(key device.Text) error {
	if by := interpretedKey(annotations, key); by != "" {
		return fmt.Errorf("%q is interpreted by %s: want a domain of your own", key, by)
	}
	return nil
}
