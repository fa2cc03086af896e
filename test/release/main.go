// Command release makes a release of all modules of dlock in a clone of the repository, and the
// files that people download.
//
//	make release VERSION=v0.1.0        # says what it would do
//	make release VERSION=v0.1.0 DO=1   # makes the commits and the tags; it never pushes
//	make dist VERSION=v0.1.0           # builds the archives and packages of the tags, into dist/
//
// CONTRIBUTING.md says why a release has three commits.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	version := flag.String("version", "", "the version, such as v0.1.0")
	do := flag.Bool("do", false, "make the commits and the tags")
	check := flag.String("check", ".ci/run", "`COMMAND` that must succeed before")
	only := flag.String("platforms", strings.Join(platforms, ","), "of --dist")
	dist := flag.String("dist", "", "build the files of a tagged version into this `FOLDER` instead")
	flag.Parse()
	root, err := os.Getwd()
	switch {
	case err != nil:
	case *version == "" || flag.NArg() > 0:
		err = errors.New("want make release VERSION=v0.1.0")
	case *dist != "":
		err = writeDist(root, *version, *dist, strings.Split(*only, ","), os.Stdout)
	default:
		r := &releaser{root: root, version: *version, check: *check, log: os.Stdout}
		if err = r.prepare(); err != nil {
			break
		}
		if !*do {
			r.plan()
			break
		}
		err = r.release()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}
