package device

// Ref names a device and the resource through which a claim has it. A device that moves to another
// resource keeps its ID, and therefore its holder.
type Ref struct {
	Resource string `json:"resource"`
	ID       string `json:"id"`
}

// String is the device in messages.
func (r Ref) String() string { return r.Resource + "=" + r.ID }
