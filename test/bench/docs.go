package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/test/bench/page"
)

// table is one that stands between two comments in docs/performance.md.
type table struct {
	name   string
	header []string
	align  string
	ratio  string // besides that to the best peer
}

var (
	rateTables = []table{
		{"rates", rateHeader("floor"), rateAlign, rateOfFloor},
		{"modes", rateHeader("exclusive lock"), rateAlign, rateOfExclusive},
	}
	commandsTable = table{"commands", []string{"store", "command", "median", "above the bare command"}, "|---|---|--:|--:|", ""}
	tables        = append(slices.Clone(rateTables), commandsTable)
)

const rateAlign = "|---|---|--:|--:|--:|---|--:|"

func rateHeader(ratio string) []string {
	return []string{"case", "store", "dlock, pairs/s", "lowest to best round", "of the " + ratio, "of the best peer", "p99 wait"}
}

// rows returns the header and the rows of a table.
func (c collection) rows(t table) [][]string {
	rows := [][]string{t.header}
	for _, k := range kinds {
		if k.table != t.name {
			continue
		}
		for _, store := range storeNames() {
			results := c.of(store, k.name)
			if k.commands {
				rows = append(rows, results.commandRows(store)...)
			} else if ours := results.fastest(func(s string) bool { return s == "dlock" }); ours != nil && ours.failure == "" {
				start := []string{strings.ToLower(k.title), store}
				rows = append(rows, append(start, results.rateCells(*ours, t.ratio)...))
			}
		}
	}
	return rows
}

func (c collection) commandRows(store string) (rows [][]string) {
	for _, r := range c {
		if r.failure == "" {
			rows = append(rows, []string{
				store, "`" + r.subject + "`",
				fmt.Sprintf("%.1f ms", r.figures[p50]/1000), fmt.Sprintf("%.1f ms", r.figures[aboveBare]),
			})
		}
	}
	return rows
}

// rateCells returns what the tables show of dlock in a case.
func (c collection) rateCells(r result, ratio string) []string {
	spread, of, ofPeer := "–", "–", "–"
	if low := r.figures[lowestRate]; low > 0 {
		spread = grouped(low) + " to " + grouped(r.figures[bestRate])
	}
	if value := r.figures[ratio]; value > 0 {
		of = fmt.Sprintf("%.2f", value)
	}
	if peer := c.fastest(r.comparableWith); peer != nil && peer.failure == "" {
		ofPeer = fmt.Sprintf("%.2f × %s", r.figures[rateOfPeer], peer.subject)
	}
	return []string{grouped(r.figures[pairsPerS]), spread, of, ofPeer, cmp.Or(r.wait(), "–")}
}

// markdown returns a table as it stands in the document; nothing without rows.
func (t table) markdown(rows [][]string) string {
	if len(rows) == 1 {
		return ""
	}
	var text strings.Builder
	for i, row := range rows {
		fmt.Fprintf(&text, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			text.WriteString(t.align + "\n")
		}
	}
	return text.String()
}

// writeDocs writes the pictures of docs/performance.md into dir/images, and its
// tables into dir/performance.md. What was not measured stays as it is.
func writeDocs(dir string, results collection) error {
	path := filepath.Join(dir, "performance.md")
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text := string(content)
	for _, t := range tables {
		written := t.markdown(results.rows(t))
		if written == "" {
			continue
		}
		at := t.place().FindStringSubmatchIndex(text)
		if at == nil {
			return fmt.Errorf("%s: there is no place for the table %s", path, t.name)
		}
		text = text[:at[2]] + written + text[at[3]:]
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return err
	}
	images := filepath.Join(dir, "images")
	if err := os.Mkdir(images, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	pictures := map[string]page.Picture{"rates.svg": results.ratesPicture(), "growth.svg": results.growthPicture()}
	for name, picture := range pictures {
		if len(picture) == 0 {
			continue
		}
		if err := os.WriteFile(filepath.Join(images, name), []byte(picture.SVG()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// place matches the document between the comments around the table.
func (t table) place() *regexp.Regexp {
	return regexp.MustCompile(`(?s)<!-- ` + t.name + `: written by test/bench --docs -->\n(.*?)<!-- end -->`)
}

// pictured is the store of the pictures: the one with most peers.
const pictured = "redis"

// ratesPicture shows the rates of one store: the floor, dlock, and every peer that
// it is compared with.
func (c collection) ratesPicture() (picture page.Picture) {
	for _, k := range kinds {
		if k.table != rateTables[0].name {
			continue
		}
		var plain collection
		for _, r := range c.of(pictured, k.name) {
			ours := result{subject: "dlock"}
			if isFloor(r.subject) || r.subject == ours.subject || ours.comparableWith(r.subject) {
				plain = append(plain, r)
			}
		}
		if bars := plain.bars(); len(bars) > 0 {
			picture = append(picture, page.Drawn{Title: k.title, Chart: bars})
		}
	}
	return picture
}

// growthPicture shows the curves of growth of the same store, or of all stores
// where only dlock is measured.
func (c collection) growthPicture() (picture page.Picture) {
	where := map[string]string{pictured: "Redis, beside other libraries", "dlock": "dlock alone"}
	for _, k := range kinds {
		if k.points == nil {
			continue
		}
		for _, drawn := range c.curves(k) {
			if where[drawn.Title] != "" {
				drawn.Title = strings.TrimPrefix(k.title, "Growth: ") + ": " + where[drawn.Title]
				picture = append(picture, drawn)
			}
		}
	}
	return picture
}
