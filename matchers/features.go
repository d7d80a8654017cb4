package matchers

// features returns the values of the device that become labels of the node. A label is no reason to
// keep a device from containers: a device without a value has no such label.
func (b *builder) features() map[string]string {
	if len(b.r.Features) == 0 {
		return nil
	}
	all := make(map[string]string)
	for _, f := range b.r.Features {
		// An error means that there is no value, or more than one.
		text, err := b.single(f.Value, b.c)
		if err == nil {
			all[f.Name] = text.String()
		}
	}
	return all
}
