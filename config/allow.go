package config

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// Allow contains the privileges that the author of the DaemonSet grants to the author of the
// configuration (--allow, --domains). The zero Allow grants no privilege, and accepts any domain.
type Allow struct {
	// Hooks permits programs that the runtime runs as root on the host.
	Hooks bool
	// Dangerous permits devices with access to the host itself.
	Dangerous bool
	// Net permits network interfaces of the host to move into containers.
	Net bool
	// Env permits environment variables that the loader or an interpreter reads.
	Env bool
	// Mounts are the paths at or below which host paths may be mounted.
	Mounts []string
	// CDI are patterns of the kinds of CDI devices of other specs that may be used.
	CDI []string
	// Domains are the valid domains of resource names. If it is empty, any domain is valid.
	Domains []string
}

// The words of --allow.
const (
	allowAll       = "all"
	allowHooks     = "hooks"
	allowDangerous = "dangerous"
	allowNet       = "net"
	allowEnv       = "env"
	allowMount     = "mount:"
	allowCDI       = "cdi:"
)

// words returns the privileges without an argument, by their words.
func (a *Allow) words() map[string]*bool {
	return map[string]*bool{
		allowHooks:     &a.Hooks,
		allowDangerous: &a.Dangerous,
		allowNet:       &a.Net,
		allowEnv:       &a.Env,
	}
}

// Set adds the privileges of a comma-separated list such as "hooks,mount:/run/vendor". If it
// returns an error, it has added none of them.
func (a *Allow) Set(list string) error {
	if strings.TrimSpace(list) == "" {
		return nil
	}
	// Other copies of the Allow share its lists, which must not grow in place.
	more := *a
	more.Mounts = slices.Clip(a.Mounts)
	more.CDI = slices.Clip(a.CDI)
	for word := range strings.SplitSeq(list, ",") {
		if err := more.add(strings.TrimSpace(word)); err != nil {
			return err
		}
	}
	*a = more
	return nil
}

// add adds the privilege of one word.
func (a *Allow) add(word string) error {
	// The word "all" is an abbreviation. A privilege that is added later must be added here, too.
	if word == allowAll {
		return a.Set("hooks,dangerous,net,env,mount:/,cdi:*")
	}
	if on := a.words()[word]; on != nil {
		*on = true
		return nil
	}
	if dir, isMount := strings.CutPrefix(word, allowMount); isMount {
		isAbsolute := strings.HasPrefix(dir, "/")
		if !isAbsolute || path.Clean(dir) != dir {
			return fmt.Errorf("%q must name an absolute, clean path, such as %q", word, allowMount+"/run/vendor")
		}
		a.Mounts = append(a.Mounts, dir)
		return nil
	}
	if kind, isCDI := strings.CutPrefix(word, allowCDI); isCDI {
		// A negated pattern would permit every kind except one, which nobody means by a privilege.
		p, err := pattern.Parse(pattern.Text, kind)
		if err != nil || p.Negative() {
			example := allowCDI + "nvidia.com/gpu"
			return fmt.Errorf("%q must name a kind of CDI devices, such as %q, or a pattern", word, example)
		}
		a.CDI = append(a.CDI, kind)
		return nil
	}
	return fmt.Errorf("%q is not a privilege: want all, hooks, dangerous, net, env, %sPATH or %sKIND",
		word, allowMount, allowCDI)
}

// CheckMount returns an error unless a path of the host may be mounted: it must be clean, and at or
// below one of a.Mounts.
func (a Allow) CheckMount(hostPath string) error {
	isAllowed := func(allowed string) bool {
		// The "/" at the end keeps /run/vendor from permitting /run/vendor-secrets.
		dir := strings.TrimSuffix(allowed, "/") + "/"
		return hostPath == allowed || strings.HasPrefix(hostPath, dir)
	}
	// A path with ".." could start with a permitted directory and leave it again.
	isClean := path.Clean(hostPath) == hostPath
	if isClean && slices.ContainsFunc(a.Mounts, isAllowed) {
		return nil
	}
	return notAllowed("mount "+hostPath, allowMount+hostPath+" or a directory above it")
}

// CheckCDI returns an error unless a CDI device of another spec may be used.
func (a Allow) CheckCDI(name string) error {
	kind, _, _ := strings.Cut(name, "=")
	isAllowed := func(allowed string) bool {
		// The pattern was valid in Set. An invalid one in an Allow that a program has filled in
		// permits nothing.
		p, err := pattern.Parse(pattern.Text, allowed)
		return err == nil && p.Match(kind)
	}
	if slices.ContainsFunc(a.CDI, isAllowed) {
		return nil
	}
	return notAllowed("CDI device "+name, allowCDI+kind)
}

// CheckEnv returns an error unless a container may have an environment variable.
// Package matchers calls it for each offer, when the values of the device are known.
func (a Allow) CheckEnv(name device.Text) error {
	// KubeVirt has names with "-", which Kubernetes accepts (IsEnvVarName in
	// k8s.io/apimachinery/pkg/util/validation).
	if err := envName("", strings.NewReplacer("-", "_", ".", "_").Replace(sample(name))); err != nil {
		return fmt.Errorf("%q %w", name, err)
	}
	if by := interpretedKey(environment, name); by != "" && !a.Env {
		return notAllowed(fmt.Sprintf("environment variable %q, which %s reads,", name, by), allowEnv)
	}
	return nil
}

// notAllowed returns an error that names the word to add to --allow, which is a list in the chart's values.
func notAllowed(what, word string) error {
	return fmt.Errorf("%s requires %s in --allow (in the chart: allow)", what, word)
}

// need is a request that --allow may permit.
type need struct {
	Problem
	// privilege is what it requires: a word of --allow, or a domain of --domains.
	privilege string
	// isPart is set if only a part of a path or a kind is known. CheckMount and CheckCDI check the results
	// of variables and wildcards.
	isPart bool
}

// allowDomain is the need for a domain of --domains.
const allowDomain = "domain:"

// isMet reports whether a permits a need.
func (a Allow) isMet(n need) bool {
	if domain, isDomain := strings.CutPrefix(n.privilege, allowDomain); isDomain {
		return len(a.Domains) == 0 || slices.Contains(a.Domains, domain)
	}
	if hostPath, isMount := strings.CutPrefix(n.privilege, allowMount); isMount {
		return a.CheckMount(hostPath) == nil || n.isPart && len(a.Mounts) > 0
	}
	if kind, isCDI := strings.CutPrefix(n.privilege, allowCDI); isCDI {
		return a.CheckCDI(kind) == nil || n.isPart && len(a.CDI) > 0
	}
	return *a.words()[n.privilege]
}

// needs records that v requests a privilege.
func (v value) needs(what, privilege string, isPart bool) {
	p := v.problem(notAllowed(what, privilege).Error())
	v.r.needs = append(v.r.needs, need{p, privilege, isPart})
}

// needsDomain records that v, the name of a resource, has a domain.
func (v value) needsDomain(domain string) {
	p := v.problem("the domain "+quote(domain)+" is not one of --domains", "add "+domain+" to --domains")
	v.r.needs = append(v.r.needs, need{Problem: p, privilege: allowDomain + domain})
}

// needsMount records that v requests to mount paths that begin with prefix, or only prefix if whole
// is set.
func (v value) needsMount(written, prefix string, whole bool) {
	if !whole {
		// Only the directory is certain: "/run/vendor/a*.sock" needs --allow=mount:/run/vendor.
		prefix = path.Dir(prefix + "x")
	}
	v.needs("mounting "+quote(written), allowMount+prefix, !whole)
}

// needsMounts records that v requests to mount the files that a glob selects.
func (v value) needsMounts(glob pattern.Values) {
	for _, a := range glob.Alternatives() {
		_, whole := a.Literal()
		v.needsMount(a.String(), a.Prefix(), whole)
	}
}

// needsCDI records that v requests CDI devices of other specs whose names begin with prefix.
func (v value) needsCDI(written, prefix string) {
	kind, _, known := strings.Cut(prefix, "=")
	if !known {
		kind = "KIND"
	}
	v.needs("CDI device "+quote(written), allowCDI+kind, !known)
}

// Check returns the requests of the configuration that are not allowed, as an error of type
// Problems, or nil. It can only check the literal prefix of names with variables or wildcards:
// CheckMount, CheckCDI and CheckEnv must check the results.
func (c *Config) Check(a Allow) error {
	var refused []Problem
	for _, n := range c.needs {
		if !a.isMet(n) {
			refused = append(refused, n.Problem)
		}
	}
	return problems(refused, len(refused))
}

// interpreted are names that a program interprets.
type interpreted struct {
	// by is the program.
	by string
	// names are separated by spaces: whole names, prefixes with "*", and, with a leading ".",
	// domains with their subdomains.
	names string
}

// annotations are names that a container runtime or one of its plugins interprets. Such annotations
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
	// plugins/device-injector of containerd/nri: devices, mounts, cdi-devices;
	// containers/nri-plugins
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

// environment are variables that make a known loader or interpreter run code, or that make a runtime
// inject devices. The list cannot be complete: any program may read a variable of its own and run code by
// it. It stops accidents and simple attacks, and a resource's variables only reach the pods that request
// the resource.
var environment = []interpreted{
	{"the loader", "LD_* DYLD_*"}, // ld.so(8): LD_PRELOAD, LD_AUDIT
	// the same; iconv(3), locale(7): modules of character sets
	{"the C library", "GLIBC_* GCONV_PATH LOCPATH"},
	{"the shell", "PATH ENV IFS CDPATH HOME SHELL BASH_* PROMPT_COMMAND PS4 SHELLOPTS ZDOTDIR"}, // sh(1p), bash(1), zsh(1)
	{"Python", "PYTHON*"},                                // python(1): PYTHONPATH, PYTHONSTARTUP, PYTHONHOME
	{"Perl", "PERL*"},                                    // perlrun(1): PERL5LIB, PERL5OPT, PERL5DB
	{"Ruby", "RUBY* GEM_* BUNDLE_*"},                     // ruby(1): RUBYOPT, RUBYLIB; gem(1)
	{"JavaScript", "NODE_OPTIONS NODE_PATH NPM_* BUN_*"}, // node(1), bun.sh/docs
	{"Java", "JAVA_TOOL_* JDK_* _JAVA_* CLASSPATH"},      // java(1): agents
	{"Erlang", "ERL_* ERLANG_* ELIXIR_*"},                // erl(1): ERL_FLAGS, ERL_AFLAGS, ERL_LIBS
	{"Lua", "LUA_*"},                                     // lua(1): LUA_INIT, LUA_PATH
	{"PHP", "PHPRC PHP_*"},                               // php(1)
	{"R", "R_PROFILE* R_ENVIRON* R_LIBS*"},               // ?Startup
	{".NET", "DOTNET_* CORECLR_*"},                       // docs/design/features/host-startup-hook.md of dotnet/runtime
	{"clients of the API server", "KUBERNETES_*"},        // rest.InClusterConfig of client-go: a server for the pod's token
	// nvidia-container-toolkit, internal/config/image: any GPU of the host, libraries, and
	// devices such as NVIDIA_GDS and NVIDIA_MOFED; ROCm/container-toolkit,
	// habana-container-runtime, ascend-docker-runtime
	{"a container runtime", "NVIDIA_* AMD_VISIBLE_DEVICES HABANA_VISIBLE_DEVICES ASCEND_*"},
}

// interpretedBy returns the program that interprets a name, or an empty string.
func interpretedBy(list []interpreted, name string) string {
	for _, i := range list {
		for want := range strings.FieldsSeq(i.names) {
			if isInterpreted(want, name) {
				return i.by
			}
		}
	}
	return ""
}

// isInterpreted reports whether a name matches an element of interpreted.names.
func isInterpreted(want, name string) bool {
	if want[0] == '.' {
		domain, _, _ := strings.Cut(name, "/")
		return strings.HasSuffix("."+domain, want)
	}
	prefix, isOpen := strings.CutSuffix(want, "*")
	return name == want || isOpen && strings.HasPrefix(name, prefix)
}

// digits are the numbers in names that are interpreted: PS4 and k8s.io.
var digits = []string{"4", "8"}

// interpretedKey returns the program that interprets a key. The key has the values of a device, and
// its open variables become numbers: "PS${index}", "cdi.k${index}s.io".
func interpretedKey(list []interpreted, key device.Text) string {
	for _, digit := range digits {
		name := key.Expand(func(string) (string, bool) {
			return digit, true
		})
		by := interpretedBy(list, name.String())
		if by != "" {
			return by
		}
	}
	return ""
}

// CheckAnnotation returns an error if a container cannot have an annotation, or must not have it, because a
// program interprets it.
func CheckAnnotation(key device.Text) error {
	if err := annotationName("", sample(key)); err != nil {
		return fmt.Errorf("%q %w", key, err)
	}
	if by := interpretedKey(annotations, key); by != "" {
		return fmt.Errorf("%q is interpreted by %s: use a domain of your own", key, by)
	}
	return nil
}
