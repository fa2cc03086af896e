package subjects

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/dlock-go/dlock/test/harness/checkout"
)

// curatorSubject is Java's InterProcessMutex. Every process warms up before it
// takes part, so that the measured code is compiled.
var curatorSubject = Subject{Name: "curator", Foreign: func(ctx context.Context, dir string) (*exec.Cmd, error) {
	classpath, err := curatorClasspath()
	if err != nil || dir == "" {
		return nil, err
	}
	addr, err := zookeeperAddr(dir)
	if err != nil {
		return nil, err
	}
	return exec.CommandContext(ctx, "java", "-Xmx128m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
		"-cp", classpath, "dlock.interop.Contender", addr, "/bench-handover", strconv.Itoa(HandoverGoroutines),
		strconv.FormatInt(HandoverHold.Nanoseconds(), 10), strconv.FormatInt(HandoverPause.Nanoseconds(), 10)), nil
}}

// curatorClasspath builds the Java program once.
var curatorClasspath = sync.OnceValues(func() (string, error) {
	for _, program := range []string{"java", "javac", "mvn"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", fmt.Errorf("there is no %s", program)
		}
	}
	scripts, err := checkout.Folder("scripts")
	if err != nil {
		return "", err
	}
	cmd := exec.Command(filepath.Join(scripts, "build-java.sh"), "curator")
	var complaints strings.Builder
	cmd.Stderr = &complaints
	output, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("building it: %w: %s", err, complaints.String())
	}
	folder := strings.TrimSpace(string(output))
	libraries, err := os.ReadFile(filepath.Join(folder, "classpath"))
	return filepath.Join(folder, "classes") + string(filepath.ListSeparator) + string(libraries), err
})
