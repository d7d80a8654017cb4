package limits

import (
	"math"
	"testing"
	"testing/fstest"
)

func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"none": {nil, math.MaxInt64},
		"version 2, in a container": {map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "100663296\n",
		}, 96 << 20},
		"version 2, in a container without a namespace of cgroups": {map[string]string{
			"proc/self/cgroup": "0::/kubepods.slice/pod1.slice/cri.scope\n", "sys/fs/cgroup/memory.max": "100663296\n",
		}, 96 << 20},
		"version 2, a slice of systemd with a lower limit": {map[string]string{
			"proc/self/cgroup":                           "0::/a.slice/b.service\n",
			"sys/fs/cgroup/a.slice/memory.max":           "1000\n",
			"sys/fs/cgroup/a.slice/b.service/memory.max": "2000\n",
		}, 1000},
		"version 2 without a limit": {map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n",
		}, math.MaxInt64},
		"version 1": {map[string]string{
			"proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/kubepods/pod1/c\n0::/\n",
			"sys/fs/cgroup/memory/kubepods/pod1/c/memory.limit_in_bytes": "100663296\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":                 "9223372036854771712\n",
		}, 96 << 20},
		"version 1, in a container": {map[string]string{
			"proc/self/cgroup": "4:memory:/kubepods/pod1/c\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "100663296\n",
		}, 96 << 20},
		"a path outside": {map[string]string{
			"proc/self/cgroup": "0::/../../x\n", "sys/fs/cgroup/memory.max": "7\n",
		}, 7},
		"damaged": {map[string]string{"proc/self/cgroup": "0\n:\n\n0::x\n"}, math.MaxInt64},
	} {
		host := fstest.MapFS{}
		for file, text := range tt.files {
			host[file] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := ofMemory(host); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}
