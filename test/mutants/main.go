// Command mutants checks that the tests catch mistakes. It makes each mistake of
// a table in a copy of the project and runs the test that must fail. It reports
// an error if a mutant survives, does not apply any more, or does not compile.
//
//	go run ./test/mutants                   # all mutants, which takes about an hour
//	go run ./test/mutants --only redislock  # mutants whose file, rule or test contains the text
//	go run ./test/mutants --list
//	go run ./test/mutants --only "the rule of a mutant" --overlay FILE   # for go build -overlay FILE
package main

import (
	"context"
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
	only := flag.String("only", "", "run the mutants whose file, rule or test contains this `text`")
	list := flag.Bool("list", false, "print the table and run nothing")
	overlay := flag.String("overlay", "", "write to this `file` what go build needs to build the one mutant that --only selects, and run nothing")
	jobs := flag.Int("jobs", 2, "how many mutants are tried at a time")
	limit := flag.Duration("timeout", 3*time.Minute, "stop a test after this time, which counts as caught")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *only, *list, *overlay, max(*jobs, 1), *limit); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string, list bool, overlay string, jobs int, limit time.Duration) error {
	selected := selection(only)
	if len(selected) == 0 {
		return fmt.Errorf("no mutant contains %q", only)
	}
	if list {
		for _, m := range selected {
			fmt.Printf("%s\n    %s: %s\n", m.rule, m.file, m.test)
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
	return runAll(ctx, root, selected, jobs, limit)
}

func selection(only string) (selected []*mutant) {
	for i := range table {
		m := &table[i]
		if strings.Contains(m.file+"\n"+m.rule+"\n"+m.test, only) {
			selected = append(selected, m)
		}
	}
	return selected
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
