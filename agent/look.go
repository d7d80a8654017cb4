package agent

import (
	"context"
	"time"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/inventory"
	"github.com/generic-dp/generic-dp/ledger"
	"github.com/generic-dp/generic-dp/matchers"
)

// View is what a configuration finds on a host at one moment.
type View struct {
	Snapshot  *device.Snapshot
	Forms     device.Forms
	Matched   matchers.Result
	Decisions ledger.Decisions
}

// view matches a snapshot: the one way in which every command does it.
func view(cfg *config.Config, snap *device.Snapshot, prev ledger.Decisions, o Options) *View {
	forms, decisions := ledger.Identify(snap, prev)
	return &View{
		Snapshot:  snap,
		Forms:     forms,
		Matched:   matchers.Match(cfg, snap, forms, matchers.Options{NodeName: o.NodeName, Exists: o.Paths.exists, Glob: o.Paths.glob}),
		Decisions: decisions,
	}
}

// lookAgain is how long Look waits for devices that are being set up.
const lookAgain = 2 * time.Second

// Look reads the host once. The identity decisions of a serving instance are
// heeded where they can be read, so that both show the same IDs.
func Look(ctx context.Context, cfg *config.Config, o Options) (*View, error) {
	scanner := inventory.New(inventory.Options{Sysfs: o.Paths.Sysfs, Dev: o.Paths.Dev, Log: o.Log})
	snap, err := scanner.Scan(ctx)
	for patience := time.Now().Add(lookAgain); err == nil && snap.Again && time.Now().Before(patience) && sleep(ctx, again); {
		snap, err = scanner.Scan(ctx)
	}
	if err != nil {
		return nil, err
	}
	persisted, err := ledger.Load(o.Paths.StateDir)
	if err != nil {
		persisted = ledger.Persisted{}
	}
	return view(cfg, snap, persisted.Decisions, o), nil
}
