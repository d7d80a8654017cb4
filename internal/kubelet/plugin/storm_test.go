package plugin

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

// After any sequence of failures the result is a registered plugin with its latest list,
// and never two of its sockets exist at once.
func TestRandomFailures(t *testing.T) {
	t.Parallel()
	eachKeying(t, func(t *testing.T, keying func(*kubelettest.Options)) {
		var n *node
		n = newNode(t, keying, func(o *kubelettest.Options) {
			o.OnRegister = func(_ context.Context, _, endpoint string) error {
				for _, name := range n.sockets() {
					if name != endpoint {
						t.Errorf("%q is registered while %q is there", endpoint, name)
					}
				}
				return nil
			}
		}).up()
		source := newSource()
		p, _ := n.plugin(gpu, source)
		random := rand.New(rand.NewPCG(1, 0))
		var list []device.Listed
		for i := range 60 {
			switch random.IntN(8) {
			case 0:
				n.must(n.Restart())
			case 1:
				n.CutStream(gpu)
			case 2:
				for _, name := range n.sockets() {
					_ = os.Remove(filepath.Join(n.dir, name))
				}
			case 3:
				n.Kill()
				for os.RemoveAll(n.dir) != nil {
					runtime.Gosched() // the plugin made a socket meanwhile
				}
				n.must(n.Start())
			case 4:
				n.waitRegistered(p, true)
			case 5:
				n.Stop()
				n.must(n.Start())
			default:
				list = append(list[:len(list):len(list)], healthy(fmt.Sprintf("d%d", i))...)
				source.set(list...)
			}
		}
		source.set(healthy("x", "y", "z")...)
		n.waitAllocatable(gpu, 3)
		n.waitRegistered(p, true)
		// The last failure may be detected only now.
		err := n.WaitFor(n.ctx, func() bool {
			_, err := n.Allocate(n.ctx, gpu, "x", "y")
			return err == nil && len(n.sockets()) == 1
		})
		if err != nil {
			t.Errorf("%v, sockets %q", err, n.sockets())
		}
		n.checkRequests(gpu)
	})
}
