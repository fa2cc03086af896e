// Command mutants checks that the tests find it when a rule of the design is broken. It breaks each rule of
// its tables in copies of the project, and runs the test that must fail. It reports an error if a mutant
// survives, does not apply any more, or does not compile.
//
//	go run ./test/mutants                   # all mutants, which takes up to 20 minutes on two cores
//	go run ./test/mutants --only redislock  # mutants whose package, rule or test contains the text
//	go run ./test/mutants --list
//	go run ./test/mutants --only "the rule of a mutant" --overlay FILE   # for go build -overlay FILE
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	only := flag.String("only", "", "run the mutants whose package, rule or test contains this `text`")
	list := flag.Bool("list", false, "print the rules and run nothing")
	overlay := flag.String("overlay", "", "write to this `file` what go build needs to build the one mutant "+
		"that --only selects, and run nothing")
	jobs := flag.Int("jobs", 2, "how many mutants are tried at a time")
	limit := flag.Duration("timeout", time.Minute, "stop a test after this time, which counts as caught")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *only, *list, *overlay, max(*jobs, 1), *limit); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string, list bool, overlay string, jobs int, limit time.Duration) error {
	var selected []*mutant
	for i := range table {
		if m := &table[i]; strings.Contains(m.folder+"\n"+m.rule+"\n"+m.test, only) {
			selected = append(selected, m)
		}
	}
	if len(selected) == 0 {
		return fmt.Errorf("no mutant contains %q", only)
	}
	if list {
		for _, m := range selected {
			fmt.Printf("%s\n    %s in %s: %s\n", m.rule, m.at, m.folder, m.test)
		}
		return nil
	}
	root, err := projectRoot(ctx)
	if err != nil {
		return err
	}
	if overlay != "" {
		return writeOverlay(root, selected, overlay)
	}
	return tryAll(ctx, root, selected, jobs, limit)
}

// projectRoot returns the folder of go.work.
func projectRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOWORK").Output()
	if err != nil {
		return "", err
	}
	work := strings.TrimSpace(string(out))
	if work == "" || work == "off" {
		return "", errors.New("no go.work found: run this command inside the project")
	}
	return filepath.Dir(work), nil
}

// writeOverlay writes the changed source of a mutant next to file, and to file the argument of
// go build -overlay that puts it in the place of the right one.
func writeOverlay(root string, selected []*mutant, file string) error {
	if len(selected) != 1 {
		return fmt.Errorf("--overlay needs one mutant, and --only selects %d", len(selected))
	}
	source, _, after, err := selected[0].applied(root)
	if err != nil {
		return err
	}
	if file, err = filepath.Abs(file); err != nil {
		return err
	}
	changed := file + filepath.Ext(source)
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, source): changed}})
	return errors.Join(err, os.WriteFile(changed, []byte(after), 0o600), os.WriteFile(file, text, 0o600))
}
