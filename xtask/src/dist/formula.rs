//! A formula for Homebrew on Linux: the archives with their digests.

use super::programs::Target;
use crate::image::VERSION;

/// Its name in a release.
pub(super) const FILE: &str = "loudou.rb";

/// Where releases are, to be replaced by whoever publishes them.
const RELEASES: &str = "https://example.com/loudou/releases";

/// The formula for archives with these digests.
pub(super) fn text(archives: &[(&Target, String)]) -> String {
    let mut text = format!(
        "class Loudou < Formula\n  \
           desc \"Watch and edit the limits that Loudou enforces inside Envoy\"\n  \
           homepage \"https://example.com/loudou\"\n  \
           version \"{VERSION}\"\n  \
           license \"Apache-2.0\"\n\n  \
           depends_on :linux\n"
    );
    for (target, digest) in archives {
        let on = if target.oci == "amd64" {
            "on_intel"
        } else {
            "on_arm"
        };
        let (triple, digest) = (target.triple, digest.replace("sha256:", ""));
        text.extend([format!(
            "\n  {on} do\n    \
               url \"{RELEASES}/v{VERSION}/loudou-{VERSION}-{triple}.tar.gz\"\n    \
               sha256 \"{digest}\"\n  \
             end\n"
        )]);
    }
    text.push_str(
        "\n  def install\n    bin.install Dir[\"bin/*\"]\n    man1.install Dir[\"share/man/man1/*\"]\n    \
           bash_completion.install \"share/bash-completion/completions/loudou\"\n    \
           fish_completion.install \"share/fish/vendor_completions.d/loudou.fish\"\n    \
           zsh_completion.install \"share/zsh/site-functions/_loudou\"\n  end\n\n  \
           test do\n    assert_match version.to_s, shell_output(\"#{bin}/loudou --version\")\n  end\nend\n",
    );
    text
}
