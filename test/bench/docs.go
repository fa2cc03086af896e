package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/dlock-go/dlock/test/bench/page"
)

// The tables of docs/performance.md stand between two comments.
const (
	ratesTable    = "rates"
	modesTable    = "modes"
	commandsTable = "commands"
)

var tableHeaders = map[string]string{
	ratesTable: "| case | store | dlock, pairs/s | lowest to best round | of the floor | of the best peer | p99 wait |\n" +
		"|---|---|--:|--:|--:|---|--:|\n",
	modesTable: "| case | store | dlock, pairs/s | lowest to best round | of the exclusive lock | of the best peer | p99 wait |\n" +
		"|---|---|--:|--:|--:|---|--:|\n",
	commandsTable: "| store | command | median | above the bare command |\n" +
		"|---|---|--:|--:|\n",
}

// ratesMarkdown returns a table of the rates of some kinds of cases. Beside
// the ratio to the best peer it has the ratio of that name.
func ratesMarkdown(results collection, chapters []chapter, ratioName string) string {
	var table strings.Builder
	for _, h := range chapters {
		for _, store := range storeNames() {
			ours, peer := results.find(store, h.kind)
			if ours == nil {
				continue
			}
			spread, ratio, ofPeer, wait := "–", "–", "–", "–"
			if low := ours.figures[lowestRate]; low > 0 {
				spread = grouped(low) + " to " + grouped(ours.figures[bestRate])
			}
			if value := ours.figures[ratioName]; value > 0 {
				ratio = fmt.Sprintf("%.2f", value)
			}
			if peer != nil {
				ofPeer = fmt.Sprintf("%.2f × %s", ours.figures[rateOfPeer], peer.subject)
			}
			if ms, ok := ours.figures[p99Wait]; ok {
				wait = fmt.Sprintf("%.1f ms", ms)
				if !ours.equalShares() {
					wait = unequal
				}
			}
			fmt.Fprintf(&table, "| %s | %s | %s | %s | %s | %s | %s |\n", strings.ToLower(h.title), store,
				grouped(ours.figures[pairsPerS]), spread, ratio, ofPeer, wait)
		}
	}
	return table.String()
}

// commandsMarkdown returns the table of the commands.
func commandsMarkdown(results collection) string {
	var table strings.Builder
	for _, store := range storeNames() {
		for _, r := range results.of(store, execute.name) {
			if r.failure == "" {
				fmt.Fprintf(&table, "| %s | `%s` | %.1f ms | %.1f ms |\n", store, r.subject, r.figures[p50]/1000, r.figures[aboveBare])
			}
		}
	}
	return table.String()
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
	for name, rows := range map[string]string{
		ratesTable:    ratesMarkdown(results, headlines, rateOfFloor),
		modesTable:    ratesMarkdown(results, modeChapters, rateOfExclusive),
		commandsTable: commandsMarkdown(results),
	} {
		if rows == "" {
			continue
		}
		if text, err = replaceTable(text, name, tableHeaders[name]+rows); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return err
	}
	images := filepath.Join(dir, "images")
	if err := os.Mkdir(images, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for name, picture := range map[string]page.Picture{"rates.svg": ratesPicture(results), "growth.svg": growthPicture(results)} {
		if len(picture.Charts) == 0 {
			continue
		}
		if err := os.WriteFile(filepath.Join(images, name), []byte(picture.SVG()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// tableIn matches a table and the comments around it.
func tableIn(name string) *regexp.Regexp {
	return regexp.MustCompile(`(?s)(<!-- ` + name + `: written by test/bench --docs -->\n)(.*?)(<!-- end -->)`)
}

func replaceTable(text, name, table string) (string, error) {
	at := tableIn(name).FindStringSubmatchIndex(text)
	if at == nil {
		return "", fmt.Errorf("there is no place for the table %s", name)
	}
	return text[:at[4]] + table + text[at[5]:], nil
}

// pictured is the store of the pictures: the one with most peers.
const pictured = "redis"

// ratesPicture shows the headlines of one store: the floor, dlock, and every peer
// that it is compared with.
func ratesPicture(results collection) (picture page.Picture) {
	for _, h := range headlines {
		var plain []result
		for _, r := range results.of(pictured, h.kind) {
			ours := result{subject: "dlock"}
			if isFloor(r.subject) || r.subject == ours.subject || ours.comparableWith(r.subject) {
				plain = append(plain, r)
			}
		}
		if bars := barsOf(plain); len(bars) > 0 {
			picture.Titles = append(picture.Titles, h.title)
			picture.Charts = append(picture.Charts, bars)
		}
	}
	return picture
}

// growthPicture shows the curves of growth of the same store, or of all stores
// where only dlock is measured.
func growthPicture(results collection) (picture page.Picture) {
	for _, c := range curveChapters {
		for _, drawn := range results.curves(c.kind, c.axis) {
			if drawn.Title == pictured || drawn.Title == "dlock" {
				where := "Redis, beside other libraries"
				if drawn.Title == "dlock" {
					where = "dlock alone"
				}
				picture.Titles = append(picture.Titles, strings.TrimPrefix(c.title, "Growth: ")+": "+where)
				picture.Charts = append(picture.Charts, drawn.Chart)
			}
		}
	}
	return picture
}
