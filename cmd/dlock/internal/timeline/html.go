package timeline

import (
	"fmt"
	"html"
	"strings"
)

// Page is a page about runs that needs no other file.
type Page struct {
	Title  string
	Intro  []string   // paragraphs
	Header []string   // of the table
	Table  [][]string // one row for each run
	Marked int        // the column of the table that is coloured
	Runs   []Run      // at least one
}

const style = `
:root { color-scheme: light dark; }
body { font: 15px/1.5 ` + fonts + `; max-width: 1280px; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; margin: 1.5em 0; font-variant-numeric: tabular-nums; }
th, td { padding: .25em .9em; text-align: right; border-bottom: 1px solid #8884; }
th:first-child, td:first-child { text-align: left; }
.bad { color: ` + red + `; font-weight: 600; }
.good { color: ` + green + `; font-weight: 600; }
.chart { overflow-x: auto; margin: 0 0 2em; }
h2 { margin-bottom: .2em; }
h2 small { font-weight: 400; color: ` + grey + `; }
.key i { display: inline-block; width: .8em; height: .8em; margin: 0 .4em 0 1.2em; }
`

const pageWidth, pixelsPerSecond = 1150, 200 // the picture of a long run is scrolled

// HTML returns the page: a table, and each run large enough to see each span.
func HTML(page Page) string {
	var b strings.Builder
	text := html.EscapeString
	fmt.Fprintf(&b, "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n<title>%s</title>\n<style>%s</style>\n<h1>%[1]s</h1>\n",
		text(page.Title), style)
	for _, paragraph := range page.Intro {
		fmt.Fprintf(&b, "<p>%s</p>\n", text(paragraph))
	}
	b.WriteString("<table>\n<tr>")
	for _, title := range page.Header {
		fmt.Fprintf(&b, "<th>%s</th>", text(title))
	}
	b.WriteString("</tr>\n")
	for i, row := range page.Table {
		b.WriteString("<tr>")
		for column, cell := range row {
			class := ""
			if column == page.Marked {
				class = map[bool]string{true: ` class="bad"`, false: ` class="good"`}[page.Runs[i].Bad]
			}
			fmt.Fprintf(&b, "<td%s>%s</td>", class, text(cell))
		}
		b.WriteString("</tr>\n")
	}
	b.WriteString("</table>\n<p class=\"key\">Which process was inside when:")
	for _, entry := range legend(page.Runs, "alone", "together with another", "goes on without its lock") {
		fmt.Fprintf(&b, "<i style=\"background:%s\"></i>%s", entry.colour, text(entry.text))
	}
	b.WriteString(". Point at a bar to see what it is.</p>\n")
	for _, run := range page.Runs {
		p := picture{left: 100, plot: max(pageWidth-110, run.Length.Seconds()*pixelsPerSecond), right: 10, lane: 14, curve: 70, detail: true}
		if _, rows := stack(run.sorted(0)); rows > 1 {
			p.lane = 6
		}
		caption, verdict := strings.ReplaceAll(run.Caption, "\n", " "), strings.ReplaceAll(run.Verdict, "\n", ", ")
		fmt.Fprintf(&b, "<h2>%s <small>%s: %s</small></h2>\n", text(run.Name), text(caption), text(verdict))
		run.Name, run.Caption, run.Verdict = "", "", ""
		fmt.Fprintf(&b, "<div class=\"chart\">\n%s</div>\n", p.draw([]Run{run}))
	}
	b.WriteString("</html>\n")
	return b.String()
}
