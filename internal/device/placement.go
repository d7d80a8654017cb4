package device

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"strings"
)

// Placement is how a claim has the nodes of its devices injected. An empty field leaves the
// configuration as it is.
type Placement struct {
	// Path is the path in the container of the only node of a device, or a directory for all of its
	// nodes, with "/" at the end.
	Path string `json:"path,omitempty"`
	// Permissions are some of the configured permissions.
	Permissions string `json:"permissions,omitempty"`
}

// placed is between the ID of a device and the hash of a placement in the name of a CDI entry.
const placed = ".claim."

// suffix completes the ID of a device to the name of its CDI entry with the placement. An ID has at
// most 63 characters and the hash alone has 64, so that no device can have such a name as its ID.
func (p Placement) suffix() string {
	if p == (Placement{}) {
		return ""
	}
	sum := sha256.Sum256([]byte(p.Path + "\x00" + p.Permissions))
	return placed + hex.EncodeToString(sum[:])
}

// EntryName returns the name of the CDI entry of the offer.
func (o *Offer) EntryName() string { return o.ID + o.Placement.suffix() }

// EntryID returns the ID of the device of a CDI entry. isPlaced is set if the entry is for a placement.
func EntryID(name string) (id string, isPlaced bool) {
	const length = len(placed) + 2*sha256.Size
	at := len(name) - length
	if at > 0 && strings.HasPrefix(name[at:], placed) {
		return name[:at], true
	}
	return name, false
}

// Check returns why a claim may not have a device with the placement.
func (p Placement) Check(o *Offer) error {
	nodes := 0
	for _, n := range o.Nodes {
		if n.Companion {
			continue
		}
		nodes++
		more := strings.Trim(p.Permissions, n.Permissions)
		if more != "" {
			return fmt.Errorf("permissions %q: the configuration only gives %q for %s", p.Permissions, n.Permissions, n.HostPath)
		}
	}
	if nodes == 0 {
		return errors.New("path and permissions are for device nodes, and it has none")
	}
	isSingle := p.Path != "" && !strings.HasSuffix(p.Path, "/")
	if isSingle && nodes > 1 {
		return fmt.Errorf(`path %q: it has %d nodes: use a directory, "%s/"`, p.Path, nodes, p.Path)
	}
	return nil
}

// Placed returns a copy of the offer with the placement, which Check may not have accepted: after an
// edit of the configuration, a container does not get more permissions than the configuration gives.
func (o Offer) Placed(p Placement) (Offer, error) {
	o.Placement = p
	nodes := make([]OfferedNode, len(o.Nodes))
	copy(nodes, o.Nodes)
	o.Nodes = nodes
	own := 0
	for i := range nodes {
		n := &nodes[i]
		if n.Companion {
			continue
		}
		own++
		if p.Permissions != "" {
			n.Permissions = common(n.Permissions, p.Permissions)
		}
		if n.Permissions == "" {
			return o, fmt.Errorf("the configuration gives none of the permissions %q for %s", p.Permissions, n.HostPath)
		}
		if p.Path != "" {
			n.Path = Literal(p.pathOf(n))
		}
	}
	isSingle := p.Path != "" && !strings.HasSuffix(p.Path, "/")
	if isSingle && own > 1 {
		return o, fmt.Errorf("path %q: it has %d nodes", p.Path, own)
	}
	return o, nil
}

// pathOf returns the path of a node in the container. In a directory, the node keeps the name that
// the configuration gives it.
func (p Placement) pathOf(n *OfferedNode) string {
	if !strings.HasSuffix(p.Path, "/") {
		return p.Path
	}
	configured := cmp.Or(n.Path.String(), n.HostPath)
	return path.Join(p.Path, path.Base(configured))
}

// common returns the permissions that are in both lists, in the order of the first one.
func common(a, b string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(b, r) {
			return r
		}
		return -1
	}, a)
}
