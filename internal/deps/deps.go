// Package deps pins dependencies while packages are written side by side.
package deps

import (
	_ "github.com/BurntSushi/toml"
	_ "github.com/bmatcuk/doublestar/v4"
	_ "github.com/fsnotify/fsnotify"
	_ "github.com/jaypipes/ghw/pkg/pci"
	_ "github.com/jaypipes/ghw"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/prometheus/client_golang/prometheus/collectors"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/spf13/cobra"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/tools/txtar"
	_ "google.golang.org/grpc"
	_ "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	_ "k8s.io/kubelet/pkg/apis/podresources/v1"
	_ "tags.cncf.io/container-device-interface/pkg/cdi"
	_ "tags.cncf.io/container-device-interface/pkg/parser"
	_ "tags.cncf.io/container-device-interface/specs-go"
)
