// Judges requests with verify.go: a line of base64 fields each, as tests/contract/test_snippets.py
// says.
package main

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"example/webhook"
)

func text(field string) string {
	decoded, err := base64.StdEncoding.DecodeString(field)
	if err != nil {
		panic(err)
	}
	return string(decoded)
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), "\t")
		now, _ := strconv.ParseInt(text(fields[0]), 10, 64)
		header := map[string][]string{}
		for _, pair := range strings.Split(text(fields[2]), "\n") {
			name, value, _ := strings.Cut(pair, ": ")
			header[name] = append(header[name], value)
		}
		body, secrets := []byte(text(fields[3])), strings.Split(text(fields[1]), "\n")
		id, err := webhook.Verify(header, body, secrets, time.Unix(now, 0))
		if err != nil {
			fmt.Println(err)
		} else {
			fmt.Println("genuine", id)
		}
	}
}
