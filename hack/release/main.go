// Command release makes the artifacts of a release that no tool makes: the image, from archives of the
// programs in the output directory, and files made from the chart. hack/release.sh and the Makefile run it.
package main

import (
	"flag"
	"log"
)

// release is the input and output of a build.
type release struct {
	source  string // root of the module
	out     string // output directory
	version string
}

// commands are the commands by name.
var commands = map[string]func(*release) error{
	"image":         (*release).image,
	"manifests":     (*release).manifests,
	"distributions": (*release).distributions,
}

func main() {
	r := release{source: "../.."}
	flag.StringVar(&r.out, "out", "../../dist", "output directory")
	flag.StringVar(&r.version, "version", "unknown", "version of the image")
	flag.Parse()
	command := commands[flag.Arg(0)]
	if command == nil {
		log.Fatal("want the command image, manifests or distributions")
	}
	if err := command(&r); err != nil {
		log.Fatal(err)
	}
}
