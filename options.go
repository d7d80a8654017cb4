package genericdp

import (
	"log/slog"
	"os"

	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
)

// Options are the options of Run. Each field has the meaning of the flag of generic-dp serve that
// its comment names, and docs/reference.md explains. DefaultOptions has their defaults. The zero
// Options are not usable.
type Options struct {
	// Config is --config: a TOML file, or a directory of *.toml files that are read as one. It
	// is followed: an edit takes effect at once.
	Config string
	// ConfigText is the configuration in place of the one at Config, if it is not empty.
	ConfigText []byte

	// Allow is --allow: words such as "hooks", "dangerous" or "mount:/srv". A configuration
	// that needs more is refused.
	Allow []string
	// Domains is --domains: the domains that names of resources may have. Empty allows any.
	Domains []string

	// KubeletDir is --kubelet-dir.
	KubeletDir string
	// PluginsRegistry is --plugins-registry, for api = "dra".
	PluginsRegistry string
	// PodResources is --pod-resources.
	PodResources string
	// Sysfs is --sysfs.
	Sysfs string
	// Cgroup is --cgroup. Empty means that nothing shows whether a pod still runs.
	Cgroup string
	// Dev is --dev.
	Dev string
	// RunDir is --run-dir. Each instance on a host needs a directory of its own.
	RunDir string
	// StateDir is --state-dir. Each instance on a host needs a directory of its own.
	StateDir string
	// CDIDir is --cdi-dir.
	CDIDir string
	// DeviceInfoDir is --device-info-dir. Empty means none.
	DeviceInfoDir string
	// NFDDir is --nfd-dir. Empty means none.
	NFDDir string

	// Listen is --listen. Empty means no status page, metrics and probes.
	Listen string
	// NodeName is --node-name.
	NodeName string

	// APIServer is the URL of the API server, for api = "dra".
	APIServer string
	// APIServerCA is a file with the certificates that may sign the server's certificate.
	APIServerCA string
	// APIServerToken is a file with the token of a service account.
	APIServerToken string

	// CDIOnly is set to keep CDI specs current without a kubelet, as serve --no-kubelet does.
	CDIOnly bool

	// Version is the version that logs, metrics and the status page show.
	Version string
	// Log gets the log. nil discards it.
	Log *slog.Logger

	// Reload reads Config again for each value, as SIGHUP does. It may be nil.
	Reload <-chan struct{}
	// Settled is called once, when all devices that are present at the start are served. It
	// may be nil.
	Settled func()
}

// DefaultOptions returns the defaults of generic-dp serve, which are right for a process on the
// host. In a pod, the name of the node and the address of the API server come from the variables
// NODE_NAME, KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT.
func DefaultOptions() Options {
	paths := agent.DefaultPaths()
	api := kubeapi.InCluster()
	return Options{
		Config:          "/etc/generic-dp",
		KubeletDir:      paths.KubeletDir,
		PluginsRegistry: paths.Registry,
		PodResources:    paths.PodResources,
		Sysfs:           paths.Sysfs,
		Cgroup:          paths.Cgroup,
		Dev:             paths.Dev,
		RunDir:          paths.RunDir,
		StateDir:        paths.StateDir,
		CDIDir:          paths.CDIDir,
		Listen:          "127.0.0.1:9418",
		NodeName:        os.Getenv("NODE_NAME"),
		APIServer:       api.Server,
		APIServerCA:     api.CA,
		APIServerToken:  api.Token,
		Version:         Version(),
	}
}
