package main

import (
	"strings"

	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
	"github.com/dlock-go/dlock/cmd/dlock/internal/timeline"
)

// drawings are the files of --html and --svg.
type drawings struct{ html, svg outputFile }

// open finds out that a file cannot be written before anything is run.
func (d *drawings) open(html, svg string) error {
	if err := d.html.open(html); err != nil {
		return err
	}
	if err := d.svg.open(svg); err != nil {
		d.html.close()
		return err
	}
	return nil
}

func (d *drawings) close() {
	d.html.close()
	d.svg.close()
}

// write writes the files that were asked for. The page's header is that of the columns.
func (d *drawings) write(columns []terminal.Column, page timeline.Page) error {
	if err := d.svg.write(timeline.SVG(page.Runs)); err != nil {
		return err
	}
	page.Header = nil
	for _, c := range columns {
		page.Header = append(page.Header, strings.ToLower(c.Title))
	}
	return d.html.write(timeline.HTML(page))
}
