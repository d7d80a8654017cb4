// Command terminal draws frames of a terminal as an animated SVG. The first line of a frame
// is its caption; a form feed ends it. Lines below the screen are cut, as by watch(1).
package main

import (
	"errors"
	"fmt"
	"html"
	"io"
	"os"
	"regexp"
	"strings"
)

const (
	columns, rows = 80, 11
	charWidth     = 9 // of the font, at 14 px, rounded up
	lineHeight    = 19
	margin        = 14
	frameSeconds  = 4
)

// coloured are the words in colour.
var coloured = regexp.MustCompile(`(Unhealthy|\d+ unhealthy|device is gone|Healthy|/dev/ttyUSB\d|usb:[\w:]+)`)

func class(word string) string {
	switch {
	case word == "Healthy":
		return "good"
	case strings.HasPrefix(word, "/dev/"), strings.HasPrefix(word, "usb:"):
		return "name"
	}
	return "bad"
}

func main() {
	text, err := io.ReadAll(os.Stdin)
	if err == nil && len(text) == 0 {
		err = errors.New("no frames on standard input")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	frames := strings.Split(string(text), "\f")
	total := len(frames) * frameSeconds
	width, height := columns*charWidth+2*margin, (rows+2)*lineHeight+2*margin
	fmt.Printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">
<style>
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #d0d7de; white-space: pre }
.caption { fill: #8b949e; font-style: italic } .good { fill: #3fb950 } .bad { fill: #f85149 } .name { fill: #79c0ff }
g { opacity: 0; animation: show %ds step-end infinite } g:last-of-type { opacity: 1 }
@keyframes show { 0%% { opacity: 1 } %.2f%% { opacity: 0 } 100%% { opacity: 0 } }
@media (prefers-reduced-motion) { g { animation: none } }
</style>
<rect width="%d" height="%d" rx="8" fill="#0d1117"/>
`, width, height, width, height, "generic-dp status while a USB stick is pulled and comes back", total, 100/float64(len(frames)), width, height)
	for i, frame := range frames {
		caption, screen, _ := strings.Cut(frame, "\n")
		lines := strings.Split(strings.TrimRight(screen, "\n"), "\n")
		fmt.Printf("<g style=\"animation-delay: %ds\">\n", i*frameSeconds-total)
		line := func(row int, markup string) {
			fmt.Printf("<text x=\"%d\" y=\"%d\">%s</text>\n", margin, margin+(row+1)*lineHeight-5, markup)
		}
		line(0, `<tspan class="caption"># `+html.EscapeString(caption)+`</tspan>`)
		line(1, "$ watch --no-title generic-dp status")
		for row, text := range lines[:min(rows, len(lines))] {
			line(row+2, coloured.ReplaceAllStringFunc(html.EscapeString(text), func(word string) string {
				return `<tspan class="` + class(word) + `">` + word + `</tspan>`
			}))
		}
		fmt.Println("</g>")
	}
	fmt.Println("</svg>")
}
