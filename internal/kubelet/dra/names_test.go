package dra

import "github.com/generic-dp/generic-dp/internal/kubelet/dra/names"

const maxValue = names.MaxValue

// className is the name of a resource's DeviceClass.
func className(resource string) string { return names.Class(resource) }
