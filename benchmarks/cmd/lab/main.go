// Lab serves a page on which you choose clients, a server, a failure, libraries and a
// configuration. It runs them in virtual time, and compares them with a bare client: see package
// lab.
//
//	go run ./benchmarks/cmd/lab
//
// It listens on a loopback address only. Each run is a child process of the same binary, which ends
// if the browser leaves the page.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/bubble"
	"github.com/resilienthttp/resilienthttp/benchmarks/lab"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8099", "loopback `address` to listen on; port 0 is a free port")
	child := flag.Bool("child", false, "make one run: for the lab itself")
	flag.Parse()
	if *child {
		runChild()
		return
	}
	if err := serve(*addr); err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

// runChild makes one run. It ends with its parent, which then closes the standard input.
func runChild() {
	log.SetOutput(io.Discard)     //nolint:forbidigo // net/http logs faults of other libraries
	debug.SetGCPercent(400)       // nearly all that a run allocates is short-lived
	debug.SetMemoryLimit(1 << 30) // from there on, collect more often
	bubble.Main(func(t *testing.T) error {
		in := bufio.NewReader(os.Stdin)
		query, err := in.ReadString('\n')
		if err != nil {
			return fmt.Errorf("lab: read the experiment: %w", err)
		}
		go func() {
			_, _ = io.Copy(io.Discard, in)
			os.Exit(1) // the parent has ended
		}()
		return lab.Child(t, strings.TrimSpace(query), os.Stdout)
	})
}

func serve(addr string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	tcp, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil || !tcp.IP.IsLoopback() {
		return fmt.Errorf("-addr: %q (want a loopback address, such as 127.0.0.1:8099)", addr)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", tcp.String())
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: lab.NewHandler(func(ctx context.Context) *exec.Cmd {
			return exec.CommandContext(ctx, program, "-child")
		}),
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx }, // an interrupt ends the run
	}
	_, _ = fmt.Fprintf(os.Stdout, "The lab is at http://%s/\n", listener.Addr())
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
