package device

import "fmt"

// Capacity is an amount of something that the claims of a device share, such as bandwidth.
// Quantities are written as the API server writes them.
type Capacity struct {
	Value string
	// Default is the amount of a claim that requests none. If it is empty, that is everything.
	Default string
}

// NewCapacity returns the capacity with a value and a default, which may be empty. It checks
// everything that the API server checks: an invalid capacity would make it refuse the slice with
// all its devices (validateRequestPolicy in pkg/apis/resource/validation of Kubernetes). field is
// the key that is invalid.
func NewCapacity(value, byDefault string) (c Capacity, field string, err error) {
	whole, err := integer(value)
	if err != nil {
		return c, "value", err
	}
	c.Value = whole.String()
	if byDefault == "" {
		return c, "", nil
	}
	part, err := integer(byDefault)
	if err != nil {
		return c, "default", err
	}
	if part.Cmp(whole) > 0 {
		return c, "default", fmt.Errorf("%s is more than value: %s", part, whole)
	}
	c.Default = part.String()
	return c, "", nil
}

// integer parses an integer quantity.
func integer(text string) (Quantity, error) {
	q, err := ParseQuantity(text)
	if err != nil {
		return q, fmt.Errorf("%q %w", text, err)
	}
	if !q.IsInt64() {
		return q, fmt.Errorf("%q is not an integer of 64 bits", text)
	}
	return q, nil
}
