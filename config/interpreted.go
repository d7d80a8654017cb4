package config

import (
	"fmt"
	"strings"

	"github.com/generic-dp/generic-dp/device"
)

// interpreted are names that mean something to whoever reads them: a prefix with "*" at
// its end, a domain and those below it with "." at its beginning, or a whole name.
type interpreted struct{ by, names string }

// annotations are those that a container runtime, or a program around it, interprets: they
// inject devices, mounts and hooks that no match selects, or lift limits of the container.
var annotations = []interpreted{
	{"Kubernetes and CDI", ".k8s.io"}, // pkg/cdi/annotations.go of the CDI library: cdi.k8s.io/
	// pkg/rdt of goresctrl, pkg/blockio: classes; AppArmor and seccomp profiles
	{"Kubernetes", ".kubernetes.io"},
	// CRI-O, pkg/annotations: Devices, userns-mode; containerd, internal/cri/annotations
	{"runtimes", "io.kubernetes.* org.opencontainers.*"},
	// pkg/annotations/v2: devices.crio.io, seccomp-profile.kubernetes.cri-o.io
	{"CRI-O", ".crio.io .cri-o.io"},
	// the options of its shims; core/runtime/restart: programs for logs
	{"containerd", "io.containerd.* .containerd.io"},
	// plugins/device-injector of containerd/nri: devices, mounts, cdi-devices; containers/nri-plugins
	{"plugins of NRI", ".nri.io .noderesource.dev"},
	{"hooks of runtimes", "io.containers.*"}, // oci-seccomp-bpf-hook: writes a file of the host
	{"Podman", "io.podman.*"},
	// libcontainer/specconv: properties of the unit; docs/checkpoint-restore.md: a file of the host
	{"runc", "org.systemd.property.* org.criu.*"},
	{"crun", "run.oci.* module.wasm.image*"}, // crun.1: hooks.stdout is a file of the host; its handlers
	// src/runtime/pkg/katautils: paths of hypervisor and kernel; older names
	{"Kata Containers", "io.katacontainers.* io.kata-containers.* com.github.containers.virtcontainers.*"},
	{"gVisor", "dev.gvisor.*"},    // runsc/specutils: flags of runsc
	{"hcsshim", "io.microsoft.*"}, // internal/annotations
}

// environment are variables by which the loader or an interpreter runs code, or by which a
// runtime injects devices. A resource with the name of another vendor's would have them in
// containers that trust that vendor.
var environment = []interpreted{
	{"the loader", "LD_*"},                         // ld.so(8): LD_PRELOAD, LD_AUDIT
	{"the C library", "GLIBC_TUNABLES GCONV_PATH"}, // the same; iconv(3): modules of character sets
	{"the shell", "PATH ENV IFS"},                  // execvp(3), sh(1p)
	// bash(1): BASH_ENV, BASH_FUNC_name%%, PS4 is expanded
	{"bash", "BASH_* PROMPT_COMMAND PS4 SHELLOPTS"},
	{"zsh", "ZDOTDIR"},                    // zsh(1)
	{"Python", "PYTHON*"},                 // python(1): PYTHONPATH, PYTHONSTARTUP, PYTHONHOME
	{"Perl", "PERL*"},                     // perlrun(1): PERL5LIB, PERL5OPT, PERL5DB
	{"Ruby", "RUBY* GEM_*"},               // ruby(1): RUBYOPT, RUBYLIB; gem(1)
	{"Node.js", "NODE_OPTIONS NODE_PATH"}, // node(1)
	// java(1): agents
	{"Java", "JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS _JAVA_OPTIONS CLASSPATH"},
	{"Lua", "LUA_*"},                  // lua(1): LUA_INIT, LUA_PATH
	{"PHP", "PHPRC PHP_INI_SCAN_DIR"}, // php(1)
	{"R", "R_PROFILE* R_ENVIRON*"},    // ?Startup
	// docs/design/features/host-startup-hook.md of dotnet/runtime, CORECLR_PROFILER_PATH
	{".NET", "DOTNET_STARTUP_HOOKS CORECLR_*"},
	{"git", "GIT_*"},         // git(1): GIT_SSH_COMMAND, GIT_CONFIG_COUNT
	{"OpenSSL", "OPENSSL_*"}, // openssl-env(7): OPENSSL_CONF, OPENSSL_MODULES
	// nvidia-container-runtime: any GPU of the host; ROCm/container-toolkit,
	// habana-container-runtime, ascend-docker-runtime
	{"a container runtime", "NVIDIA_VISIBLE_DEVICES NVIDIA_MIG_* NVIDIA_IMEX_CHANNELS AMD_VISIBLE_DEVICES HABANA_VISIBLE_DEVICES ASCEND_VISIBLE_DEVICES"},
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
		for want := range strings.FieldsSeq(comparable(i.names)) {
			prefix, isPrefix := strings.CutSuffix(want, "*")
			if name == want || isPrefix && strings.HasPrefix(name, prefix) || want[0] == '.' && strings.HasSuffix("."+domain, want) {
				return i.by
			}
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
