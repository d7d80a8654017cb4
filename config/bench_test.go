package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/config"
)

// BenchmarkParse parses 200 resources with 2,000 matches.
func BenchmarkParse(b *testing.B) {
	var text strings.Builder
	text.WriteString("domain = \"example.com\"\n")
	for i := range 200 {
		fmt.Fprintf(&text, "[[resource]]\nname = \"serial-%d\"\ncontainer.path = \"/dev/serial/${usb.serial}\"\ncontainer.env.SERIAL_%d = \"${usb.serial}\"\nmatch = [\n", i, i)
		for j := range 10 {
			fmt.Fprintf(&text, "  { usb = { id = [\"10c4:ea60\", \"%04x:%04x\"], serial = \"A%d*\" }, glob = \"/dev/tty{USB,ACM}*\", attr = { bInterfaceNumber = \"%02d\" } },\n", i, j, i, j)
		}
		text.WriteString("]\n")
	}
	file := config.File{Name: "large.toml", Data: []byte(text.String())}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := config.Parse(file); err != nil {
			b.Fatal(err)
		}
	}
}
