# Bash cuts words at : and =, which addresses and options contain. This function joins them again, up to the cursor.
_loudou() {
    local cut=("${COMP_WORDS[@]}") at=$COMP_CWORD rest=$COMP_LINE last=-1 index word bare
    local COMP_WORDS=() COMP_CWORD
    for ((index = 0; index <= at; index++)); do
        word=${cut[index]}
        bare=${rest#"${rest%%[![:space:]]*}"}
        if ((last < 0)) || [[ $bare != "$rest" ]]; then
            last=$((last + 1))
        fi
        rest=${bare#"$word"}
        # After such a character, the word to complete is empty.
        if ((index == at)) && [[ -n $2 || $word != [:=]* ]]; then
            word=$2
        fi
        COMP_WORDS[last]+=$word
    done
    COMP_CWORD=$last
    word=${COMP_WORDS[last]}
    _clap_complete_loudou "$1" "$word" "$3"
    # Only the text after the last of these characters is replaced.
    COMPREPLY=("${COMPREPLY[@]#"${word%"$2"}"}")
    for word in "${COMPREPLY[@]}"; do
        # Readline quotes file names. Nothing else needs quotes.
        if [[ $word == *[!a-zA-Z0-9_./:@+,%=-]* && -e $word ]]; then
            compopt -o filenames 2> /dev/null
        fi
    done
    if [[ ${#COMPREPLY[@]} -eq 0 && $2 == "~"* ]]; then
        compopt -o default 2> /dev/null
    fi
}
# Bash would cut the name of a target into two words.
COMP_WORDBREAKS=${COMP_WORDBREAKS//@}
