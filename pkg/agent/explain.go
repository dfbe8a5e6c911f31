// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/modelberth/modelberth/pkg/agent/members"
	"github.com/modelberth/modelberth/pkg/agent/oci"
	"github.com/modelberth/modelberth/pkg/hub"
	"github.com/modelberth/modelberth/pkg/redact"
)

// source has the names for the message of a failure.
type source struct {
	endpoint, repo, revision, dest string
	isImage                        bool
}

func (s source) String() string { return fmt.Sprintf("%q at revision %q", s.repo, s.revision) }

// sourceError is an error of a target, with the names for the message.
type sourceError struct {
	source source
	err    error
}

func (e *sourceError) Error() string { return e.source.String() + ": " + e.err.Error() }

func (e *sourceError) Unwrap() error { return e.err }

// explain turns the agent's last error into one sentence for the user, with the remedy.
func explain(err error) Termination {
	t := explainCause(err)
	t.Message = redact.Text(t.Message)
	return t
}

func explainCause(err error) Termination {
	if loss := new(members.LossError); errors.As(err, &loss) {
		return explainLoss(loss)
	}
	if awaited := new(AwaitError); errors.As(err, &awaited) {
		return explainAwait(awaited)
	}
	var where source
	if of := new(sourceError); errors.As(err, &of) {
		err, where = of.err, of.source
	}
	if where.repo == "" {
		return explainPresent(err, where)
	}
	return explainFetch(err, where)
}

// explainPresent explains errors about files that users have put on a volume.
func explainPresent(err error, s source) Termination {
	var (
		absent   *AbsentError
		checksum *hub.ChecksumError
		storage  *StorageError
	)
	switch {
	case errors.As(err, &absent) && absent.Found < 0:
		return Termination{ReasonNotFound, fmt.Sprintf(
			"there is no file %q in %s: copy the model's files there, or correct the path", absent.Path, s.dest)}
	case errors.As(err, &absent) && absent.Want == 0:
		return Termination{ReasonNotFound, fmt.Sprintf("file %q in %s is empty: copy the file there again", absent.Path, s.dest)}
	case errors.As(err, &absent):
		return Termination{ReasonChecksumMismatch, fmt.Sprintf(
			"file %q in %s has %d bytes instead of %d: copy the whole file there", absent.Path, s.dest, absent.Found, absent.Want)}
	case errors.As(err, &checksum):
		return Termination{ReasonChecksumMismatch, fmt.Sprintf(
			"file %q in %s has %s %s instead of %s: copy the right file there, or correct the expected checksum",
			checksum.File.Path, s.dest, checksum.Want.Algorithm, checksum.Got, checksum.Want.Hex)}
	case errors.As(err, &storage):
		return Termination{ReasonStorageFailed, fmt.Sprintf(
			"%q in %s cannot be read (%v): check the volume's permissions and health", storage.Path, s.dest, storage.Err)}
	}
	return Termination{ReasonStorageFailed, fmt.Sprintf("%s cannot be read (%v): check the volume", s.dest, err)}
}

func explainLoss(l *members.LossError) Termination {
	reason := ReasonMemberLost
	if l.IsReplacement() {
		reason = ReasonMemberReplaced
	}
	return Termination{reason, l.Error() +
		": all pods of the group are replaced and load the model again; if this repeats, check the last state and the node of the member's pod"}
}

func explainAwait(e *AwaitError) Termination {
	what, waited := e.Err, ""
	if stalled := new(StalledError); errors.As(e.Err, &stalled) {
		waited = fmt.Sprintf(" after %s", stalled.For)
		if unreachable := new(hub.UnreachableError); errors.As(e.Err, &unreachable) {
			what = unreachable.Err
		}
	}
	return Termination{ReasonMemberAbsent, fmt.Sprintf(
		"the member at %s is still not listening%s (%v): check the state, the image and the node of the member's pod", e.Address, waited, what)}
}

func explainFetch(err error, s source) Termination {
	var (
		unauthorized *hub.UnauthorizedError
		notFound     *hub.NotFoundError
		checksum     *hub.ChecksumError
		other        *OtherFileError
		unverifiable *UnverifiableError
		full         *DiskFullError
		large        *TooLargeError
		unpacked     *oci.LimitError
		storage      *StorageError
	)
	switch {
	case errors.As(err, &unauthorized):
		return Termination{ReasonUnauthorized, explainUnauthorized(unauthorized, s)}
	case errors.As(err, &notFound):
		return Termination{ReasonNotFound, explainNotFound(notFound, s)}
	case errors.As(err, &large):
		return Termination{ReasonDiskFull, fmt.Sprintf(
			"the files of %s need %s, and the pod has room for %s: remove another adapter, or leave this one out",
			s, humanBytes(large.Need), humanBytes(large.Most))}
	case errors.As(err, &checksum):
		return Termination{ReasonChecksumMismatch, fmt.Sprintf(
			"file %q of %s from %s arrived twice with %s %s instead of %s: correct the expected checksum, or repair the hub or proxy that alters the file",
			checksum.File.Path, s, s.endpoint, checksum.Want.Algorithm, checksum.Got, checksum.Want.Hex)}
	case errors.As(err, &other):
		return Termination{ReasonChecksumMismatch, fmt.Sprintf(
			"file %q of %s has %s %s instead of %s: push the right file, or correct the expected checksum",
			other.Path, s, other.Want.Algorithm, other.Got, other.Want.Hex)}
	case errors.As(err, &unverifiable):
		return Termination{ReasonChecksumMismatch, fmt.Sprintf(
			"file %q of %s cannot be verified, because %s publishes no %s for the file: specify the file's SHA-256, or use another hub",
			unverifiable.File.Path, s, s.endpoint, unverifiable.Lacks)}
	case errors.As(err, &full):
		return Termination{ReasonDiskFull, fmt.Sprintf(
			"file %q of %s needs %s more space on %s, which has only %s free: use a volume or machine with a larger disk",
			full.Path, s, humanBytes(full.Need), s.dest, humanBytes(full.Free))}
	case errors.As(err, &unpacked):
		return Termination{ReasonDiskFull, explainUnpacked(unpacked, s)}
	case errors.As(err, &storage):
		return Termination{ReasonStorageFailed, fmt.Sprintf(
			"file %q of %s cannot be stored on %s (%v): check the volume's permissions and health",
			storage.Path, s, s.dest, storage.Err)}
	}
	return Termination{ReasonHubUnreachable, explainUnreachable(err, s)}
}

func explainUnpacked(e *oci.LimitError, s source) string {
	limit := fmt.Sprintf("%d files and directories (the agent's --unpack-limit-entries)", e.Limit)
	if e.What == "bytes" {
		limit = humanBytes(e.Limit) + " (the disk in the plan; the agent's --unpack-limit-gib)"
	}
	return fmt.Sprintf("%s: layer %s unpacks to more than the limit of %s: push an artifact with only the model's files, "+
		"each as a layer of its own instead of in an archive", s, e.Layer, limit)
}

func explainUnauthorized(e *hub.UnauthorizedError, s source) string {
	what := fmt.Sprintf("%s refused file %q of %s with status %d%s", s.endpoint, e.File.Path, s, e.Status, said(e.Message))
	if e.File.Path == "" {
		what = fmt.Sprintf("%s refused %s with status %d%s", s.endpoint, s, e.Status, said(e.Message))
	}
	switch {
	case s.isImage:
		return what + ": check that the artifact exists, and provide credentials with read access in a Secret of type kubernetes.io/dockerconfigjson"
	case e.Gated && e.TokenSent:
		return what + ": accept the model's conditions on the model's page with the account that the token belongs to"
	case e.Gated:
		return what + ": accept the model's conditions on the model's page, and put your account's token into the Secret in modelAccessSecret (key HF_TOKEN)"
	case e.TokenSent:
		return what + ": check that the repository exists, and that the token (key HF_TOKEN of the Secret in modelAccessSecret) is valid and may read it"
	}
	return what + ": check that the repository exists, and if it is private, put a token into the Secret in modelAccessSecret (key HF_TOKEN)"
}

func explainNotFound(e *hub.NotFoundError, s source) string {
	switch e.Missing {
	case "repository":
		return fmt.Sprintf("%s has no repository %q%s: correct the repository's name", s.endpoint, s.repo, said(e.Message))
	case "revision":
		names := "branch, tag or commit"
		if s.isImage {
			names = "tag or digest"
		}
		return fmt.Sprintf("%s has no revision %q of %q%s: name an existing %s", s.endpoint, s.revision, s.repo, said(e.Message), names)
	}
	if e.File.Path == "" {
		return fmt.Sprintf("%s has no %s%s: correct the repository or the revision", s.endpoint, s, said(e.Message))
	}
	if s.isImage {
		return fmt.Sprintf("%s has no file %q, which the engine needs: push it with the model's files, or set inference.weights.path to their directory",
			s, e.File.Path)
	}
	return fmt.Sprintf("%s has no file %q in %s%s: correct the file's name or the revision", s.endpoint, e.File.Path, s, said(e.Message))
}

func explainUnreachable(err error, s source) string {
	if authority := new(AuthorityError); errors.As(err, &authority) {
		return fmt.Sprintf("%s cannot be fetched, because the configured certificate authorities are invalid (%v): have the administrator correct them",
			s, authority.Err)
	}
	if untrusted := new(x509.UnknownAuthorityError); errors.As(err, untrusted) {
		return fmt.Sprintf("fetching %s from %s fails, because no trusted authority signed the certificate of %s: "+
			"have the administrator add the authority's certificate", s, s.endpoint, unreachableName(err, s))
	}
	what, waited := "", ""
	if stalled := new(StalledError); errors.As(err, &stalled) {
		waited = fmt.Sprintf(" for %s", stalled.For)
		if err = stalled.Last; err == nil {
			what = "no data and no error arrived"
		}
	}
	if err != nil {
		what = obstacle(err)
	}
	check := "check that the hub is up, that its URL (chart value hub.endpoint) is right, and that the pod's network allows connections to it"
	if s.isImage {
		check = "check that the registry is up, that the pod's network allows connections to it, and that the artifact's name is right"
	}
	return fmt.Sprintf("fetching %s from %s made no progress%s (%s): %s", s, s.endpoint, waited, what, check)
}

// obstacle describes a server's unexpected response.
func obstacle(err error) string {
	if malformed := new(hub.MalformedError); errors.As(err, &malformed) {
		return fmt.Sprintf("%s: %v", malformed.Endpoint, malformed.Err)
	}
	unreachable := new(hub.UnreachableError)
	if !errors.As(err, &unreachable) {
		return err.Error()
	}
	what := fmt.Sprintf("%s: %v", unreachable.Endpoint, unreachable.Err)
	if unreachable.Err == nil {
		what = fmt.Sprintf("%s answered with status %d", unreachable.Endpoint, unreachable.Status)
	}
	if unreachable.RetryAfter > 0 {
		what += fmt.Sprintf(" and asked to wait %s", unreachable.RetryAfter)
	}
	return what
}

// unreachableName returns the server that failed: the hub, or the target of its redirect.
func unreachableName(err error, s source) string {
	if unreachable := new(hub.UnreachableError); errors.As(err, &unreachable) {
		return unreachable.Endpoint
	}
	return s.endpoint
}

func said(message string) string {
	if message == "" {
		return ""
	}
	return fmt.Sprintf(" (%q)", message)
}

func humanBytes(n int64) string {
	const unit = 1024
	value, prefix := float64(n), 0
	for ; value >= unit && prefix < 4; prefix++ {
		value /= unit
	}
	if prefix == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGT"[prefix-1])
}
